package power

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Print writes the tables. Ratios are to our own client that starts from nothing.
func (r *Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range r.contests {
		printRows(w, "IPMI, ipmi_sim, suite 3, "+added(c.delay), c.rows[:overIPMI])
		printRows(w, "Redfish over TLS 1.3, "+added(c.delay), c.rows[overIPMI:])
	}
	r.printNeeds(w)
	r.scale.print(w)
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
	fmt.Fprintf(w, "isolate %d hosts (off and proof, the 3 s counted)\t%s\t-\n", answering, milli(s.isolateAlone))
	fmt.Fprintf(w, "isolate %d hosts beside %d with a hung BMC\t%s (%.2f)\t< %.1f of it: %s\n", answering, s.hung, milli(s.isolateBeside),
		ratio(s.isolateBeside, s.isolateAlone), boundIsolateBeside, verdict(ratio(s.isolateBeside, s.isolateAlone) <= boundIsolateBeside))
}

func verdict(kept bool) string {
	if kept {
		return "ok"
	}
	return "broken"
}

func milli(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
