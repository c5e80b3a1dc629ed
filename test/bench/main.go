// Command bench measures the built fenced against a real API server and etcd on
// loopback, under a steady stream of Node status updates, and prints the figures
// beside the bounds of docs/performance.md and beside OpenShift's controller.
//
//	bench            set up a fleet, measure, print the tables (make bench)
//	bench -where     the same fleet: where the time goes when many Machines fail together
//	bench power      what making certain that a host is off costs, by fenced and
//	                 by others, and a thousand BMCs at once (package power)
//	bench clusters   many clusters and several daemons over one etcd: hand-over,
//	                 balance, and whether one cluster slows down others
//	bench scale      one daemon from 1,000 to 100,000 Nodes (make bench-scale)
//	bench table      read `go test -bench` output on stdin, print it as tables
//	bench burn       the other work of a busy machine; bench starts it itself
//
// The files in the order of a measurement: bench.go runs it, fleet.go is what stands in the cluster and the BMCs, usage.go
// the updates and what programs cost, many.go what fails together, where.go where its time goes, main.go the tables.
// clusters.go and clusterclaims.go measure many clusters, on what clustersite.go sets up; scale.go is bench
// scale, world.go the processes around its daemon.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"k8s.io/klog/v2"

	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/bench/power"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	klog.SetLogger(klog.Logger{}) // client-go's; what matters comes as an error
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	switch word {
	case "table":
		return table(os.Stdin, os.Stdout)
	case burnWord:
		return burn(ctx)
	case power.WorkerWord:
		return power.Serve(ctx, os.Stdin, os.Stdout)
	case "power":
		return measurePower(ctx, args[1:])
	case "clusters":
		return measureClusters(ctx, args[1:])
	case apiWord:
		return serveAPI(ctx, os.Stdin, os.Stdout)
	case bmcsWord:
		return serveBMCs(ctx, os.Stdin, os.Stdout)
	case "scale":
		return measureScale(ctx, args[1:])
	}
	o := Options{Settle: 5 * time.Second, Progress: os.Stderr}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.Nodes, "nodes", 5000, "Nodes with a Machine each")
	f.IntVar(&o.Rate, "rate", 100, "Node status updates per second")
	f.DurationVar(&o.Window, "window", 30*time.Second, "how long CPU is measured")
	f.IntVar(&o.Samples, "samples", 20, "hosts, and cloud Machines, that are made to fail one after another")
	f.IntVar(&o.Together, "together", 100, "cloud Machines that are made to fail at the same moment")
	f.IntVar(&o.Rounds, "rounds", 3, "how often they fail, for fenced and for OpenShift's controller in turn")
	f.BoolVar(&o.Busy, "busy", false, "measure these rounds also while every processor has other work")
	f.Func("also", "another build of fenced to measure in these rounds (repeatable)", func(program string) error {
		o.Also = append(o.Also, program)
		return nil
	})
	f.BoolVar(&o.Where, "where", false, "measure only where the time of fenced goes when many fail at the same moment; needs strace")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	r, err := Measure(ctx, o)
	if err != nil {
		return err
	}
	if r.WhereTo != nil {
		return r.WhereTo.Print(os.Stdout)
	}
	return r.Print(os.Stdout)
}

// measureScale prints the table of all sizes, also if a later one could not be measured.
func measureScale(ctx context.Context, args []string) error {
	o := ScaleOptions{Progress: os.Stderr}
	f := flag.NewFlagSet("bench scale", flag.ContinueOnError)
	sizes := f.String("nodes", "1000,10000,100000", "numbers of Nodes, each with a Machine and a BMC")
	most := f.Int("sweep", 100_000, "the most Nodes with which the BMC health check is measured")
	f.IntVar(&o.Rate, "rate", 100, "Node status updates per second")
	f.DurationVar(&o.Window, "window", 30*time.Second, "how long CPU is measured")
	f.IntVar(&o.Samples, "samples", 10, "hosts that are made to fail one after another")
	f.IntVar(&o.Rounds, "rounds", 1, "intervals for which the BMC health check is measured")
	f.StringVar(&o.Programs.Fenced, "fenced", "", "the daemon to measure; built if empty")
	f.StringVar(&o.Programs.Fencectl, "fencectl", "", "its fencectl, if -fenced is given")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	var results []*ScaleResult
	var failed error
	for text := range strings.SplitSeq(*sizes, ",") {
		if o.Nodes, failed = strconv.Atoi(text); failed != nil {
			break
		}
		if o.Sweep = 0; o.Nodes <= *most {
			o.Sweep = time.Minute
		}
		var r *ScaleResult
		if r, failed = MeasureScale(ctx, o); failed != nil {
			break
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return failed
	}
	return errors.Join(PrintScale(os.Stdout, results), failed)
}

// measurePower is an error, after the tables, when a bound is broken.
func measurePower(ctx context.Context, args []string) error {
	o := power.Options{Progress: os.Stderr}
	f := flag.NewFlagSet("bench power", flag.ContinueOnError)
	f.IntVar(&o.Samples, "samples", 5, "of each operation on loopback")
	f.IntVar(&o.BMCs, "bmcs", 1000, "BMCs that are asked at once")
	f.BoolVar(&o.OnlyMany, "many", false, "measure only what many hosts that are isolated at once take")
	if err := f.Parse(args); err != nil {
		return err
	}
	r, err := power.Measure(ctx, o)
	if err != nil {
		return err
	}
	fmt.Println(machine())
	if err := r.Print(os.Stdout); err != nil {
		return err
	}
	return r.Check()
}

// The bounds that the figures are held against; docs/performance.md has them all.
const (
	boundLatency = 50 * time.Millisecond // median, at 5,000 Nodes and 100 updates/s
	boundCPU     = 0.05                  // of a core, the same
	boundRSS     = 80 << 20              // the same
)

func (r *Result) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%d Nodes and Machines, %.0f Node status updates/s (asked for: %d), real kube-apiserver and etcd on the same machine\n",
		r.Nodes, r.Fenced.Updates, r.Rate)
	fmt.Fprintf(w, "%s\n\n", machine())
	fmt.Fprintln(w, "decision latency\tsamples\tmedian\tp95\tmax\tbound (median)\tmedian / bound")
	r.latencyRow(w, "timeout over -> first byte at the BMC", r.Metal)
	r.latencyRow(w, "timeout over -> DELETE of a Machine at the API server", r.Cloud)
	fmt.Fprintln(w)
	r.Many.print(w, r.contestants())
	fmt.Fprintln(w, "cost\tfenced\tOpenShift's controller\tthat / fenced\tbound\tfenced / bound")
	costs := func(what string, of func(Usage) float64, show func(float64) string, bound float64) {
		fenced, controller := of(r.Fenced), of(r.Controller)
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f", what, show(fenced), show(controller), controller/fenced)
		if bound > 0 {
			fmt.Fprintf(w, "\t%s\t%.2f", show(bound), fenced/bound)
		}
		fmt.Fprintln(w)
	}
	memory := func(v float64) string { return mebi(int64(v)) }
	costs(fmt.Sprintf("CPU over %s, of one core", r.Window), func(u Usage) float64 { return u.CPU }, func(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }, boundCPU)
	costs("resident memory", func(u Usage) float64 { return float64(u.RSS) }, memory, boundRSS)
	costs("of it no pages of the program", func(u Usage) float64 { return float64(u.Own) }, memory, 0)
	costs("most memory ever", func(u Usage) float64 { return float64(u.Peak) }, memory, 0)
	fmt.Fprintf(w, "updates/s during its window\t%.1f\t%.1f\n", r.Fenced.Updates, r.Controller.Updates)
	fmt.Fprintf(w, "start -> armed, all Nodes judged\t%s\n", milli(r.Start))
	return w.Flush()
}

func (r *Result) latencyRow(w io.Writer, what string, samples []time.Duration) {
	median := times.Quantile(samples, 0.5)
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%.2f\n", what, len(samples), milli(median), milli(times.Quantile(samples, 0.95)),
		milli(times.Quantile(samples, 1)), milli(boundLatency), median.Seconds()/boundLatency.Seconds())
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

// table prints the output of `go test -bench -benchmem` as one table per
// package. Every other line (a failure among them) is passed on as it is.
func table(in io.Reader, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := 0
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		pkg, isPkg := strings.CutPrefix(line, "pkg: ")
		b, isRow := parseBenchmark(line)
		switch {
		case isPkg:
			fmt.Fprintf(w, "\n%s\ttimes run\ttime/op\tmemory/op\tallocations/op\tother\n", pkg)
		case isRow:
			rows++
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", b.name, b.runs, b.metric("ns/op", short), b.metric("B/op", size),
				b.metric("allocs/op", plain), b.others())
		case !noise(line):
			fmt.Fprintln(w, line)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the benchmarks: %w", err)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if rows == 0 {
		return fmt.Errorf("read the benchmarks: there is none")
	}
	return nil
}

// noise is what go test says about itself and the machine.
func noise(line string) bool {
	for _, p := range []string{"goos: ", "goarch: ", "cpu: ", "PASS", "ok  \t", "?   \t", "      \t"} {
		if strings.HasPrefix(line, p) {
			return true
		}
	}
	return line == ""
}

// benchmark is one line of results; metrics are value and unit in turn.
type benchmark struct {
	name, runs string
	metrics    []string
}

func parseBenchmark(line string) (b benchmark, ok bool) {
	f := strings.Fields(line)
	if len(f) < 4 || len(f)%2 != 0 || !strings.HasPrefix(f[0], "Benchmark") {
		return b, false
	}
	return benchmark{name: strings.TrimPrefix(f[0], "Benchmark"), runs: f[1], metrics: f[2:]}, true
}

func (b benchmark) metric(unit string, show func(float64) string) string {
	for i := 0; i < len(b.metrics); i += 2 {
		if b.metrics[i+1] != unit {
			continue
		}
		v, err := strconv.ParseFloat(b.metrics[i], 64)
		if err != nil {
			return b.metrics[i] // shown as it came
		}
		return show(v)
	}
	return "-"
}

func plain(v float64) string { return fmt.Sprintf("%.0f", v) }

func short(ns float64) string {
	if ns < 1000 {
		return fmt.Sprintf("%.1f ns", ns)
	}
	return scaled(ns/1000, 1000, "us", "ms", "s")
}

func size(n float64) string { return scaled(n, 1024, "B", "KiB", "MiB", "GiB") }

func scaled(v, step float64, units ...string) string {
	for len(units) > 1 && v >= step {
		v, units = v/step, units[1:]
	}
	return fmt.Sprintf("%.4g %s", v, units[0])
}

// others are the metrics that a benchmark reports of its own.
func (b benchmark) others() string {
	var all []string
	for i := 0; i < len(b.metrics); i += 2 {
		switch unit := b.metrics[i+1]; unit {
		case "ns/op", "B/op", "allocs/op":
		default:
			all = append(all, b.metrics[i]+" "+unit)
		}
	}
	return strings.Join(all, ", ")
}
