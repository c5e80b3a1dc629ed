package power

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options size a measurement.
type Options struct {
	Samples  int  // of each operation; half of it, or one, where that is slow
	BMCs     int  // at once
	OnlyMany bool // only what many hosts at once take
	// Progress is told what happens.
	Progress io.Writer
}

type Report struct {
	contests []contest // as delays
	needs    []times
	scale    scale
	many     []isolation
}

// Measure measures everything; it takes about three minutes with the samples of
// `make bench`. It needs ipmi_sim, ipmitool and the two fence agents.
func Measure(ctx context.Context, o Options) (*Report, error) {
	if o.Samples < 1 || o.BMCs < 10 {
		return nil, errors.New("at least one sample and ten BMCs are needed")
	}
	tell := func(what string) { fmt.Fprintf(o.Progress, "bench: power: %s\n", what) }
	r := &Report{}
	if o.OnlyMany {
		var err error
		r.many, err = measureMany(ctx, o.BMCs, fewer(o.Samples), tell, ownProcess)
		return r, err
	}
	for i, delay := range delays {
		tell(fmt.Sprintf("all contestants, %s added to each round trip", delay))
		c, err := hold(ctx, delay, []int{o.Samples, fewer(o.Samples), 1}[i], ownProcess)
		if err != nil {
			return nil, err
		}
		r.contests = append(r.contests, c)
	}
	tell("fenced's own times against those of the protocol")
	var err error
	if r.needs, err = measureNeeds(ctx, fewer(o.Samples)); err != nil {
		return nil, err
	}
	tell(fmt.Sprintf("%d BMCs at once", o.BMCs))
	if r.scale, err = measureScale(ctx, o.BMCs, fewer(o.Samples)); err != nil {
		return nil, err
	}
	r.many, err = measureMany(ctx, o.BMCs, fewer(o.Samples), tell, ownProcess)
	return r, err
}

func fewer(samples int) int { return (samples + 1) / 2 }

// Check is an error that names every bound which does not hold.
func (r *Report) Check() error {
	broken := r.scale.broken()
	for _, t := range r.needs {
		broken = append(broken, t.broken()...)
	}
	for _, m := range r.many {
		broken = append(broken, m.broken()...)
	}
	if len(broken) == 0 {
		return nil
	}
	return fmt.Errorf("bound broken: %s", strings.Join(broken, "; "))
}

// entries are the lines of the tables, ours first.
var entries = []entry{
	{tool: "fenced", over: startDebian}, {tool: "fenced", warm: true, over: startDebian}, {tool: "ipmitool", over: startDebian},
	{tool: "bmclib", over: startDebian}, {tool: "fence_ipmilan", over: startDebian}, {tool: "fence_ipmilan (defaults)", over: startDebian},
	{tool: "fenced", over: startRedfish}, {tool: "fenced", warm: true, over: startRedfish},
	{tool: "bmclib", over: startRedfish}, {tool: "fence_redfish", over: startRedfish},
}

// overIPMI is how many of the entries are over IPMI; the others are over Redfish.
const overIPMI = 6

// row is what a contestant needed.
type row struct {
	name string
	// status is one status read; proof a power off with two Off reads, the time
	// between them left out.
	status, proof figure
}

// contest is all contestants over one network.
type contest struct {
	delay time.Duration
	rows  []row // as entries
}

// hold lets all contestants do everything, samples times. One at a time does
// something; the time between two Off reads is the same for all, so that the
// others use it.
func hold(ctx context.Context, delay time.Duration, samples int, connect connect) (contest, error) {
	t := contest{delay: delay}
	var all []*contestant
	defer func() {
		for _, c := range all {
			c.end()
		}
	}()
	for _, e := range entries {
		c, err := e.start(ctx, delay, connect)
		if err != nil {
			return t, err
		}
		all = append(all, c)
		t.rows = append(t.rows, row{name: c.name()})
	}
	for range samples {
		if err := t.round(ctx, all); err != nil {
			return t, fmt.Errorf("%s added: %w", delay, err)
		}
	}
	return t, nil
}

// round is one sample of each. A host's second read comes as soon as it may: a
// session that is left alone ends.
func (t *contest) round(ctx context.Context, all []*contestant) error {
	for i, c := range all {
		s, err := c.prepared(actStatus)
		if err != nil {
			return err
		}
		t.rows[i].status = append(t.rows[i].status, s)
	}
	var begun []half
	for i, c := range all {
		off, err := c.prepared(actOff)
		if err != nil {
			return err
		}
		begun = append(begun, half{i, off, time.Now().Add(spacing)})
		for len(begun) > 0 && !time.Now().Before(begun[0].due) {
			if err := t.confirm(all, begun[0]); err != nil {
				return err
			}
			begun = begun[1:]
		}
	}
	for _, h := range begun {
		if err := until(ctx, h.due); err != nil {
			return err
		}
		if err := t.confirm(all, h); err != nil {
			return err
		}
	}
	return nil
}

// half is a proof with its first read; due is when the second may follow.
type half struct {
	entry int
	off   cost
	due   time.Time
}

func (t *contest) confirm(all []*contestant, h half) error {
	c := all[h.entry]
	s, err := c.do(actConfirm)
	if err != nil {
		return err
	}
	if !c.off() {
		return fmt.Errorf("by %s a host was called off that is on", c.name())
	}
	t.rows[h.entry].proof = append(t.rows[h.entry].proof, h.off.add(s))
	return nil
}

// until waits; it is an error when ctx ended first.
func until(ctx context.Context, when time.Time) error {
	timer := time.NewTimer(time.Until(when))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errors.Join(errors.New("the measurement took too long"), ctx.Err())
	case <-timer.C:
		return nil
	}
}

// tolerance is how much longer than its round trips and the spacing an operation
// of ours may take.
const tolerance = 0.10

// need is what the protocol needs for an operation of ours, the end of the session
// with it, which waits for an answer too.
type need struct {
	what  string
	entry entry
	act   act
	trips trips
	waits time.Duration
}

var needs = []need{
	// Open Session, RAKP 1, RAKP 3, status, close.
	{"IPMI status", entry{tool: "fenced", over: startGo}, actStatus, trips{datagrams: 5}, 0},
	{"IPMI status, session open", entry{tool: "fenced", warm: true, over: startGo}, actStatus, trips{datagrams: 1}, 0},
	// ... and privilege, off, status, status.
	{"IPMI off and proof", entry{tool: "fenced", over: startGo}, actProof, trips{datagrams: 8}, spacing},
	{"IPMI off and proof, session open", entry{tool: "fenced", warm: true, over: startGo}, actProof, trips{datagrams: 3}, spacing},
	// Login, system, logout.
	{"Redfish status", entry{tool: "fenced", over: startRedfish}, actStatus, trips{requests: 3, handshakes: 1}, 0},
	{"Redfish status, session open", entry{tool: "fenced", warm: true, over: startRedfish}, actStatus, trips{requests: 1}, 0},
	// Login, system, off, system, system, logout.
	{"Redfish off and proof", entry{tool: "fenced", over: startRedfish}, actProof, trips{requests: 6, handshakes: 1}, spacing},
	{"Redfish off and proof, session open", entry{tool: "fenced", warm: true, over: startRedfish}, actProof, trips{requests: 3}, spacing},
}

// delays are what the network adds to a round trip.
var delays = []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond}

// times are those of one need at all delays.
type times struct {
	need
	figures []figure // as delays
}

// least is what no client can do faster.
func (n need) least(delay time.Duration) time.Duration {
	return time.Duration(n.trips.roundTrips())*delay + n.waits
}

// overhead is how much longer it took than that, as a share of it; 0 where there
// is nothing to compare with: a status without delay is all overhead.
func (n need) overhead(delay, took time.Duration) float64 {
	least := n.least(delay)
	if least == 0 {
		return 0
	}
	return float64(took-least) / float64(least)
}

// broken is every bound that t does not keep.
func (t times) broken() (all []string) {
	for i, f := range t.figures {
		if o := t.overhead(delays[i], f.wall()); o > tolerance {
			all = append(all, fmt.Sprintf("%s at %s took %.0f %% longer than its round trips", t.what, delays[i], 100*o))
		}
		if got := f.trips(); got != t.trips {
			all = append(all, fmt.Sprintf("%s at %s took %+v, not %+v", t.what, delays[i], got, t.trips))
		}
	}
	return all
}

// measureNeeds measures proofs side by side, because they wait nearly all the
// time, and then the status reads one after another.
func measureNeeds(ctx context.Context, samples int) ([]times, error) {
	all := make([]times, len(needs))
	for i, n := range needs {
		all[i] = times{n, make([]figure, len(delays))}
	}
	for _, waiting := range []bool{true, false} {
		var g errgroup.Group
		if !waiting {
			g.SetLimit(1)
		}
		for i, n := range needs {
			if (n.waits > 0) != waiting {
				continue
			}
			for k, delay := range delays {
				g.Go(func() (err error) {
					all[i].figures[k], err = n.measure(ctx, delay, samples, ownProcess)
					return err
				})
			}
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (n need) measure(ctx context.Context, delay time.Duration, samples int, c connect) (figure, error) {
	p, err := n.entry.start(ctx, delay, c)
	if err != nil {
		return nil, err
	}
	defer p.end()
	var f figure
	for range samples {
		s, err := p.prepared(n.act)
		if err != nil {
			return nil, fmt.Errorf("%s at %s: %w", n.what, delay, err)
		}
		f = append(f, s)
	}
	return f, nil
}

const (
	hungOf10 = 1 // of ten BMCs that do not answer
	// execAtOnce is how many ipmitool run at once, on execSample BMCs: a thousand
	// would take too long.
	execAtOnce, execSample = 64, 100
)

// The bounds of scale.
const (
	boundSweep = 200 * time.Millisecond // the status of 1,000
	// What 900 take beside 100 hung ones, as a share of what they take alone. A
	// status of all is so short that the machine's noise shows; waiting for one
	// hung BMC would be 5 s.
	boundSweepBeside, boundIsolateBeside = 1.5, 1 + tolerance
)

// scale is what a status of many BMCs at once takes.
type scale struct {
	size, hung int
	sweep      time.Duration // status of all
	exec       time.Duration // status of a sample, by ipmitool
	sample     int
	// The time of those that answer, alone and beside those that hang.
	sweepAlone, sweepBeside time.Duration
}

func measureScale(ctx context.Context, size, samples int) (scale, error) {
	s := scale{size: size, hung: size * hungOf10 / 10, sample: min(size, execSample)}
	f, jobs, err := startFleet(ctx, size, directIPMI)
	if err != nil {
		return s, err
	}
	defer f.stop()
	status := func(hosts []job, hung int) (time.Duration, error) {
		took, err := medianOf(samples, func() (time.Duration, error) { return crowdOf(hosts, hung).each(ctx, readOn) })
		if err != nil {
			err = fmt.Errorf("status of %d BMCs, %d hung: %w", len(hosts), hung, err)
		}
		return took, err
	}
	if s.sweep, err = status(jobs, 0); err != nil {
		return s, err
	}
	if s.exec, err = sweepByExec(ctx, jobs[:s.sample]); err != nil {
		return s, fmt.Errorf("status of %d BMCs by ipmitool: %w", s.sample, err)
	}
	if err = f.hang(s.hung, true); err != nil {
		return s, err
	}
	if s.sweepAlone, err = status(jobs[s.hung:], 0); err == nil {
		s.sweepBeside, err = status(jobs, s.hung)
	}
	return s, err
}

func medianOf(samples int, measure func() (time.Duration, error)) (time.Duration, error) {
	var all []time.Duration
	for range samples {
		took, err := measure()
		if err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// sweepByExec is the status of BMCs as a shell script reads it.
func sweepByExec(ctx context.Context, jobs []job) (time.Duration, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(execAtOnce)
	began := time.Now()
	for _, j := range jobs {
		g.Go(func() error { return ipmitool{j}.status(ctx) })
	}
	err := g.Wait()
	return time.Since(began), err
}

// broken is every bound that s does not keep.
func (s scale) broken() (all []string) {
	if s.sweep >= boundSweep {
		all = append(all, fmt.Sprintf("the status of %d BMCs took %s", s.size, s.sweep))
	}
	if ratio(s.sweepBeside, s.sweepAlone) > boundSweepBeside {
		all = append(all, fmt.Sprintf("a status beside %d hung BMCs took %s, and %s without them", s.hung, s.sweepBeside, s.sweepAlone))
	}
	return all
}

func ratio(a, b time.Duration) float64 { return a.Seconds() / b.Seconds() }

// Print writes the tables. Ratios are to our own client that starts from nothing.
func (r *Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range r.contests {
		printRows(w, "IPMI, ipmi_sim, suite 3, "+added(c.delay), c.rows[:overIPMI])
		printRows(w, "Redfish over TLS 1.3, "+added(c.delay), c.rows[overIPMI:])
	}
	if len(r.contests) > 0 {
		r.printNeeds(w)
		r.scale.print(w)
	}
	printMany(w, r.many)
	return w.Flush()
}

func added(delay time.Duration) string {
	if delay == 0 {
		return "no delay"
	}
	return fmt.Sprintf("%d ms a round trip", delay.Milliseconds())
}

func printRows(w io.Writer, title string, rows []row) {
	fmt.Fprintf(w, "\n%s; median of %d, ratio to ours in brackets\n", title, len(rows[0].status))
	fmt.Fprintln(w, "\tone status\tCPU\tround trips\toff and proof without the 3 s\tCPU\tround trips")
	for _, row := range rows {
		fmt.Fprint(w, row.name)
		row.status.print(w, rows[0].status)
		row.proof.print(w, rows[0].proof)
		fmt.Fprintln(w)
	}
}

func (f figure) print(w io.Writer, ours figure) {
	trips := f.trips()
	fmt.Fprintf(w, "\t%s (%.3g)\t%s (%.3g)\t%s", milli(f.wall()), ratio(f.wall(), ours.wall()),
		milli(f.cpu()), ratio(f.cpu(), ours.cpu()), trips)
}

// String is the number of round trips, and of what where that is not plain.
func (t trips) String() string {
	if t.requests == 0 {
		return fmt.Sprint(t.roundTrips())
	}
	return fmt.Sprintf("%d (%d HTTP, %d TLS)", t.roundTrips(), t.requests, t.handshakes)
}

func (r *Report) printNeeds(w io.Writer) {
	fmt.Fprintf(w, "\nfenced against the protocol; median of %d, and what is over round trips x delay and the 3 s of a proof: bound %.0f %%\n",
		len(r.needs[0].figures[0]), 100*tolerance)
	fmt.Fprint(w, "\tround trips needed\ttaken")
	for _, d := range delays {
		fmt.Fprintf(w, "\t%s\tover", added(d))
	}
	fmt.Fprintln(w, "\tbound")
	for _, t := range r.needs {
		fmt.Fprintf(w, "%s\t%s\t%s", t.what, t.trips, t.figures[0].trips())
		for i, f := range t.figures {
			over := "-"
			if t.least(delays[i]) > 0 {
				over = fmt.Sprintf("%.1f %%", 100*t.overhead(delays[i], f.wall()))
			}
			fmt.Fprintf(w, "\t%s\t%s", milli(f.wall()), over)
		}
		fmt.Fprintf(w, "\t%s\n", verdict(len(t.broken()) == 0))
	}
}

func (s scale) print(w io.Writer) {
	answering := s.size - s.hung
	fmt.Fprintf(w, "\n%d BMCs at once, in one process with the client\ttime\tbound\n", s.size)
	fmt.Fprintf(w, "status of all by fenced\t%s\t< %s: %s\n", milli(s.sweep), boundSweep, verdict(s.sweep < boundSweep))
	whole := s.exec * time.Duration(s.size) / time.Duration(s.sample)
	fmt.Fprintf(w, "status of all by ipmitool, %d at once, extrapolated from %d BMCs\t%s (%.3g)\t-\n",
		execAtOnce, s.sample, milli(whole), ratio(whole, s.sweep))
	fmt.Fprintf(w, "status of %d\t%s\t-\n", answering, milli(s.sweepAlone))
	fmt.Fprintf(w, "status of %d beside %d hung ones\t%s (%.2f)\t< %.1f of it: %s\n", answering, s.hung, milli(s.sweepBeside),
		ratio(s.sweepBeside, s.sweepAlone), boundSweepBeside, verdict(ratio(s.sweepBeside, s.sweepAlone) <= boundSweepBeside))
}

func verdict(kept bool) string {
	if kept {
		return "ok"
	}
	return "broken"
}

func milli(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
