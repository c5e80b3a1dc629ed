package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// The bounds that the figures are held against; docs/performance.md has them all.
const (
	boundLatency = 50 * time.Millisecond // median, at 5,000 Nodes and 100 updates/s
	boundCPU     = 0.05                  // of a core, the same
	boundRSS     = 80 << 20              // the same
)

// Print writes the tables.
func (r *Result) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%d Nodes and Machines, %.0f Node status updates/s (asked for: %d), real kube-apiserver and etcd on the same machine\n",
		r.Nodes, r.Fenced.Updates, r.Rate)
	fmt.Fprintf(w, "%s\n\n", machine())
	fmt.Fprintln(w, "decision latency\tsamples\tmedian\tp95\tmax\tbound (median)\tmedian / bound")
	r.latencyRow(w, "timeout over -> first byte at the BMC", r.Metal)
	r.latencyRow(w, "timeout over -> DELETE of a Machine at the API server", r.Cloud)
	fmt.Fprintln(w)
	r.manyRows(w)
	fmt.Fprintln(w)
	fmt.Fprintln(w, "cost\tfenced\tre-judge everything per event\tpeer / fenced\tbound\tfenced / bound")
	fmt.Fprintf(w, "CPU over %s, of one core\t%.2f %%\t%.2f %%\t%.1f\t%.0f %%\t%.2f\n", r.Window,
		100*r.Fenced.CPU, 100*r.Peer.CPU, r.Peer.CPU/r.Fenced.CPU, 100*boundCPU, r.Fenced.CPU/boundCPU)
	fmt.Fprintf(w, "resident memory\t%s\t%s\t%.1f\t%s\t%.2f\n", mebi(r.Fenced.RSS), mebi(r.Peer.RSS),
		float64(r.Peer.RSS)/float64(r.Fenced.RSS), mebi(boundRSS), float64(r.Fenced.RSS)/boundRSS)
	fmt.Fprintf(w, "of it no pages of the program\t%s\t%s\t%.1f\t-\t-\n", mebi(r.Fenced.Own), mebi(r.Peer.Own), float64(r.Peer.Own)/float64(r.Fenced.Own))
	fmt.Fprintf(w, "most memory ever\t%s\t%s\t%.1f\t-\t-\n", mebi(r.Fenced.Peak), mebi(r.Peer.Peak), float64(r.Peer.Peak)/float64(r.Fenced.Peak))
	fmt.Fprintf(w, "updates/s during its window\t%.1f\t%.1f\t-\t-\t-\n", r.Fenced.Updates, r.Peer.Updates)
	fmt.Fprintf(w, "full judgements/s\t-\t%.1f\t-\t-\t-\n", r.Judgements)
	fmt.Fprintf(w, "start -> armed, all Nodes judged\t%s\t-\t-\t-\t-\n", milli(r.Start))
	return w.Flush()
}

func (r *Result) latencyRow(w io.Writer, what string, samples []time.Duration) {
	median := quantile(samples, 0.5)
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%.2f\n", what, len(samples), milli(median), milli(quantile(samples, 0.95)),
		milli(quantile(samples, 1)), milli(boundLatency), median.Seconds()/boundLatency.Seconds())
}

func milli(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

func mebi(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// machine says on what was measured.
func machine() string {
	model := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d x %s, %s", runtime.NumCPU(), model, runtime.Version())
}
