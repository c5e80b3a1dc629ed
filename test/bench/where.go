package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/rig"
)

// Where says where the time of fenced goes when many Machines fail at the same moment: what the API server has logged of its
// requests, fenced's audit log of its decisions, strace of its fsyncs and Go's runtime of its garbage collections. fenced is the
// one that ships: it measures nothing of this itself.
type Where struct {
	attempt
	stages     []stage
	syncs      map[string]*spent // by file
	requests   map[string]*spent // by verb and resource, until the last DELETE
	afterwards map[string]*spent // the same, after it
	busiest    int               // most requests in one second
	gcs        spent
}

// stage is a moment in the life of each run, from the timeout.
type stage struct {
	name string
	at   []time.Duration
}

// spent is how often something was done, and how long all of that took together. Much of it is done at the same time.
type spent struct {
	times int
	took  time.Duration
}

func (s *spent) add(took time.Duration) { s.times, s.took = s.times+1, s.took+took }

func addTo(m map[string]*spent, key string, took time.Duration) {
	if m[key] == nil {
		m[key] = &spent{}
	}
	m[key].add(took)
}

// where has the Machines fail once, for a fenced that is traced.
func (b *bench) where(ctx context.Context) (*Where, error) {
	d, err := b.startDaemon(ctx, b.programs.Fenced)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	if !rig.Sleep(ctx, b.Settle) {
		return nil, ctx.Err()
	}
	if b.Busy {
		burner, err := b.startBurner()
		if err != nil {
			return nil, err
		}
		defer burner.stop()
	}
	b.tell("failing %d cloud Machines at the same moment", b.Together)
	w := &Where{syncs: map[string]*spent{}, requests: map[string]*spent{}, afterwards: map[string]*spent{}}
	if w.attempt, err = b.together(ctx, d.process); err != nil {
		return nil, fmt.Errorf("%w\nthe end of fenced's log:\n%s", err, d.logTail())
	}
	d.stop() // its logs are whole
	from := w.From
	to := from.Add(w.Deleted[len(w.Deleted)-1])
	if err := w.readRequests(b.cluster, from, to); err != nil {
		return nil, err
	}
	if err := w.readDecisions(filepath.Join(d.dir, "audit.jsonl"), from); err != nil {
		return nil, err
	}
	slices.SortFunc(w.stages, func(a, b stage) int { return cmp.Compare(times.Quantile(a.at, 0.5), times.Quantile(b.at, 0.5)) })
	w.stages = append(w.stages, stage{"DELETE has reached the API server", w.Deleted})
	if err := w.readTrace(filepath.Join(d.dir, traceFile), from, to); err != nil {
		return nil, err
	}
	return w, w.readCollections(d.log, from.Sub(d.began), to.Sub(d.began))
}

// traceFile is what strace writes.
const traceFile = "strace"

// traced is a command whose fsyncs strace notes. Only these stop the program. It keeps its process ID.
func traced(dir, program string, args ...string) (string, []string) {
	return "strace", append([]string{
		"-D", "-f", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-y", "-ttt", "-T", "-q", "-o", filepath.Join(dir, traceFile),
		"env", "GODEBUG=gctrace=1", program,
	}, args...)
}

// readRequests adds fenced's requests, and of each target when its reads begin and end.
func (w *Where) readRequests(c *rig.ControlPlane, from, to time.Time) error {
	all, err := c.Requests(rig.FencedUser)
	if err != nil {
		return err
	}
	begin, end, deleted := map[string]time.Time{}, map[string]time.Time{}, map[string]time.Time{}
	for _, r := range all {
		if r.Verb == "delete" {
			deleted[r.Name] = r.Received
		}
	}
	var arrivals []time.Time
	for _, r := range all {
		if r.Received.Before(from) {
			continue
		}
		arrivals = append(arrivals, r.Received)
		key := r.Verb + " " + r.Resource
		if r.Received.After(to) {
			addTo(w.afterwards, key, r.Done.Sub(r.Received))
			continue
		}
		addTo(w.requests, key, r.Done.Sub(r.Received))
		if d, isTarget := deleted[r.Name]; r.Verb != "get" || !isTarget || r.Received.After(d) {
			continue
		}
		if t, seen := begin[r.Name]; !seen || r.Received.Before(t) {
			begin[r.Name] = r.Received
		}
		if r.Done.After(end[r.Name]) {
			end[r.Name] = r.Done
		}
	}
	slices.SortFunc(arrivals, time.Time.Compare)
	for i, first := 0, 0; i < len(arrivals); i++ {
		for arrivals[i].Sub(arrivals[first]) > time.Second {
			first++
		}
		w.busiest = max(w.busiest, i+1-first)
	}
	w.add("first read of the target has reached the API server", slices.Collect(maps.Values(begin)), from)
	w.add("last read of the target is answered", slices.Collect(maps.Values(end)), from)
	return nil
}

func (w *Where) add(name string, at []time.Time, from time.Time) {
	s := stage{name: name}
	for _, t := range at {
		s.at = append(s.at, t.Sub(from))
	}
	if len(s.at) > 0 {
		w.stages = append(w.stages, s)
	}
}

// readDecisions adds when the entries of fenced's audit log were made. Each is durable before what follows.
func (w *Where) readDecisions(path string, from time.Time) error {
	at := map[string][]time.Time{}
	_, err := audit.Walk(path, func(l audit.Line) error {
		name := ""
		switch e := l.Entry; {
		case e.Type == string(event.Started):
			name = "every gate has passed; the start goes to the audit log"
		case e.Type == string(event.Acting) && e.Action == string(remediate.DeleteTargetMachine):
			name = "record and intent are on the disk; the action goes to the audit log"
		default:
			return nil
		}
		at[name] = append(at[name], l.Entry.At)
		return nil
	})
	for name, times := range at {
		w.add(name, times, from)
	}
	return err
}

// syncLine is a line of strace: 12 1790000000.123456 fdatasync(9</tmp/state.db>) = 0 <0.000812>. A call that others interrupt has
// two lines, of which the second has the time.
var syncLine = regexp.MustCompile(`^(\d+) +(\d+\.\d+) (?:<\.\.\. )?f(?:data)?sync(?:\(\d+<([^>]*)>(.*)| resumed>.*)$`)

// readTrace adds the fsyncs.
func (w *Where) readTrace(path string, from, to time.Time) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read what strace has noted: %w", err)
	}
	defer f.Close()
	files := map[string]string{} // of unfinished calls, by thread
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := syncLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		file := cmp.Or(m[3], files[m[1]])
		if strings.Contains(m[4], "unfinished") {
			files[m[1]] = file
			continue
		}
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return fmt.Errorf("read what strace has noted: %w", err)
		}
		open := strings.LastIndex(lines.Text(), "<")
		took, err := time.ParseDuration(strings.TrimSuffix(lines.Text()[open+1:], ">") + "s")
		if err != nil {
			return fmt.Errorf("read what strace has noted: %w", err)
		}
		if at := time.UnixMicro(int64(seconds * 1e6)); at.After(from) && at.Before(to) {
			addTo(w.syncs, filepath.Base(file), took)
		}
	}
	return lines.Err()
}

// gcLine is a line of GODEBUG=gctrace=1: when it ended, from the start of the program, and the times of its three phases on the clock and of processors.
var gcLine = regexp.MustCompile(`(?m)^gc \d+ @([\d.]+)s \d+%: ([\d.]+)\+([\d.]+)\+([\d.]+) ms clock, ([\d.]+)\+([\d.]+)/([\d.]+)/([\d.]+)\+([\d.]+) ms cpu`)

// readCollections adds the garbage collections between two times from the start of the program.
func (w *Where) readCollections(log string, from, to time.Duration) error {
	text, err := os.ReadFile(log)
	if err != nil {
		return fmt.Errorf("read fenced's log: %w", err)
	}
	for _, m := range gcLine.FindAllSubmatch(bytes.ReplaceAll(text, []byte("\r"), nil), -1) {
		var n [9]float64
		for i := range n {
			if n[i], err = strconv.ParseFloat(string(m[i+1]), 64); err != nil {
				return fmt.Errorf("read fenced's log: %w", err)
			}
		}
		if at := time.Duration(n[0] * float64(time.Second)); at < from || at > to {
			continue
		}
		cpu := n[4] + n[5] + n[6] + n[8] // without that of processors that had nothing else to do
		w.gcs.add(time.Duration(cpu * float64(time.Millisecond)))
	}
	return nil
}

func (w *Where) Print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n%s\n\n%d Machines fail at the same moment, from the timeout\tfirst\tmedian\tlast\n", machine(), len(w.Deleted))
	for _, s := range w.stages {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.name, milli(times.Quantile(s.at, 0)), milli(times.Quantile(s.at, 0.5)), milli(times.Quantile(s.at, 1)))
	}
	fmt.Fprintln(t, "\nfrom the timeout until the last DELETE\thow often\ttime of all together\tof each")
	row := func(what string, s *spent) {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", what, s.times, milli(s.took), milli(s.took/time.Duration(max(1, s.times))))
	}
	for _, m := range []struct {
		before, after string
		of            map[string]*spent
	}{{"fsync of ", "", w.syncs}, {"request: ", "", w.requests}, {"request: ", ", in the 2 s after it", w.afterwards}} {
		for _, key := range slices.SortedFunc(maps.Keys(m.of), func(a, b string) int { return cmp.Or(m.of[b].times-m.of[a].times, strings.Compare(a, b)) }) {
			row(m.before+key+m.after, m.of[key])
		}
	}
	row("garbage collection, CPU time", &w.gcs)
	for i, name := range sharers {
		fmt.Fprintf(t, "CPU time of %s\t\t%s\n", name, milli(w.UntilLast[i]))
	}
	fmt.Fprintf(t, "most requests of fenced within a second; from %d on they wait for the client's rate limit\t%d\n", clientBurst, w.busiest)
	return t.Flush()
}

// clientBurst is how many requests fenced's client makes without a wait, after it has made few.
const clientBurst = 800
