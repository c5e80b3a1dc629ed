package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/page"
	"github.com/fenced/fenced/internal/wire"
)

// reportDays is the period of a report that names none.
const reportDays = 30

func newReportCommand(c *cli) *cobra.Command {
	since := reportDays * 24 * time.Hour
	cmd := &cobra.Command{
		Use:   "report [--since 30d]",
		Short: "report what was fenced, what would have been, and what was refused",
		Long: `Report a period from the audit log of the fenced that answers: what was fenced; in mode
observe, what would have been, and whether it recovered by itself; what was refused and
for how long; how long each step took; which BMCs were not dependable; which limits
closed, or nearly did. The first sentences say how much of the period the log covers.

Let fenced run in mode observe for two weeks, and decide on that. -o html writes one
file to send or print.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.report(cmd.Context(), since) },
	}
	cmd.Flags().Var(days{&since}, "since", "the time up to now that it is about, like 14d or 24h")
	return cmd
}

func (c *cli) report(ctx context.Context, since time.Duration) error {
	if since <= 0 {
		return usageError(errors.New("--since is a time back from now"), "fencectl report --since 14d")
	}
	rep, err := c.client().Report(ctx, c.cluster, time.Now().Add(-since))
	if err != nil {
		return requestError("read the report", err)
	}
	if c.output == "html" {
		return writeReport(c.out, &rep.Value)
	}
	return c.print(rep.Body, func() error { return c.printPeriod(&rep.Value) })
}

// printPeriod prints the summary, and a table for each section.
func (c *cli) printPeriod(r *wire.PeriodReport) error {
	p := c.painter(c.out)
	fmt.Fprintf(c.out, "report from %s to %s\n\n", clock(r.Since), clock(r.Until))
	for _, s := range r.Summary {
		for i, line := range wrap(escapeControl(s), max(0, p.width-4)) {
			fmt.Fprintf(c.out, "%s%s\n", [...]string{"- ", "  "}[min(i, 1)], line)
		}
	}
	for _, s := range sectionsOf(r) {
		t := newTable(s.Head...)
		for _, row := range s.Rows {
			cells := make([]any, len(row))
			for i := range row {
				cells[i] = row[i]
			}
			t.add(cells...)
		}
		if s.More > 0 {
			t.add(fmt.Sprintf("and %d more", s.More))
		}
		if err := t.write(c.out, p, strings.ToUpper(s.Title)); err != nil {
			return err
		}
	}
	return nil
}

// section is one table of a report.
type section struct {
	Title string
	Note  string // what the table does not say by itself
	Head  []string
	Rows  [][]string
	More  int
}

// add appends a row, with a dash for what is empty.
func (s *section) add(cells ...string) {
	for i := range cells {
		cells[i] = orDash(cells[i])
	}
	s.Rows = append(s.Rows, cells)
}

// sectionsOf are the tables of a report.
func sectionsOf(r *wire.PeriodReport) []section {
	return []section{evidenceSection(r), modesSection(r), wouldSection(r), fencedSection(r), phasesSection(r), refusedSection(r), bmcSection(r), limitsSection(r)}
}

func evidenceSection(r *wire.PeriodReport) section {
	s := section{Title: "Gaps of the evidence", Head: []string{"FROM", "TO", "CLUSTER", "WHAT"}, More: r.Evidence.GapsMore,
		Note: "In these times the log may lack something. What began or ended in them is counted only as far as the log shows it."}
	for _, g := range r.Evidence.Gaps {
		s.add(clock(g.From), clock(g.To), g.Cluster, g.What)
	}
	return s
}

func modesSection(r *wire.PeriodReport) section {
	s := section{Title: "Modes in force", Head: []string{"CLUSTER", "MODE", "FROM", "TO", "FOR"}}
	for _, m := range r.Modes {
		s.add(m.Cluster, strings.ReplaceAll(m.Mode, ",", ", "), clock(m.From), clock(m.To), inSeconds(m.Seconds))
	}
	return s
}

func wouldSection(r *wire.PeriodReport) section {
	s := section{Title: "Would have been fenced", Head: []string{"FROM", "CLUSTER", "NODE", "CHECK", "OUTCOME", "AFTER"}, More: r.Would.ListMore,
		Note: "A check asked for it, and the mode let fenced only observe. Fenced asks the other gates after the mode, so each could still have refused. Recovered: no check asked any more, and fenced had done nothing; another remediator may have, or somebody changed the check."}
	for _, o := range r.Would.List {
		s.add(clock(o.From), o.Cluster, cmp.Or(o.Node, o.Machine), o.Check, o.Outcome, inSeconds(o.Seconds))
	}
	return s
}

func fencedSection(r *wire.PeriodReport) section {
	s := section{Title: "Fenced", Head: []string{"STARTED", "RUN", "CLUSTER", "NODE", "RESULT", "REASON", "TOOK", "PROOF", "BY", "TRIGGER"}, More: r.Fenced.RunsMore}
	for _, f := range r.Fenced.Runs {
		s.add(clock(f.Started), f.ID, f.Cluster, cmp.Or(f.Node, f.Machine), f.Result, f.Reason, span(cmp.Or(f.Ended, r.Until).Sub(f.Started)), f.Proof, f.By, f.Trigger)
	}
	return s
}

func phasesSection(r *wire.PeriodReport) section {
	s := section{Title: "How long it took", Head: []string{"PHASE", "COUNT", "MEDIAN", "P95", "MAX", "WHAT"}}
	for _, p := range r.Phases {
		s.add(p.Phase, strconv.Itoa(p.Count), inSeconds(p.MedianSeconds), inSeconds(p.P95Seconds), inSeconds(p.MaxSeconds), p.Means)
	}
	return s
}

func refusedSection(r *wire.PeriodReport) section {
	s := section{Title: "Refused", Head: []string{"REASON", "CLASS", "COUNT", "TARGETS", "LONGEST", "TOTAL", "NOW", "ORDERS"},
		Note: "Count: how often the reason began to keep a target of a check, or a run that waits, from going on. Orders: orders of people that it refused."}
	for _, f := range r.Refused {
		s.add(f.Reason, f.Class, strconv.Itoa(f.Count), strconv.Itoa(f.Targets), inSeconds(f.LongestSeconds), inSeconds(f.TotalSeconds), strconv.Itoa(f.Now), strconv.Itoa(f.Orders))
	}
	return s
}

func bmcSection(r *wire.PeriodReport) section {
	s := section{Title: "BMCs that were not dependable", Head: []string{"CLUSTER", "NODE", "DEVICE", "COUNT", "LONGEST", "TOTAL", "GOOD", "REASON", "NOW"}, More: r.BMCs.OutagesMore,
		Note: "The log has no single look at a BMC, only when one stopped being dependable and when it was again. Good: the part of the covered time without such an outage."}
	for _, o := range r.BMCs.Outages {
		now := "dependable"
		if o.Lasts {
			now = "not dependable"
		}
		s.add(o.Cluster, o.Node, o.Device, strconv.Itoa(o.Count), inSeconds(o.LongestSeconds), inSeconds(o.TotalSeconds), fmt.Sprintf("%.1f %%", 100*o.GoodShare), o.Reason, now)
	}
	return s
}

func limitsSection(r *wire.PeriodReport) section {
	s := section{Title: "Limits of checks", Head: []string{"CLUSTER", "CHECK", "NEAR", "CLOSED", "LONGEST", "TOTAL", "NOW", "LAST"},
		Note: "Near: the next unhealthy target would have closed the limit, or the last tenth of those that it allows."}
	for _, l := range r.Limits {
		now := "open"
		if l.Lasts {
			now = "closed"
		}
		s.add(l.Cluster, l.Check, strconv.Itoa(l.Near), strconv.Itoa(l.Closed), inSeconds(l.LongestSeconds), inSeconds(l.TotalSeconds), now, l.Message)
	}
	return s
}

func inSeconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

var reportTemplate = sync.OnceValue(func() *template.Template {
	return page.Parse(`<div class="head"><h1>Report</h1> <span>from {{moment .Report.Since}} to {{moment .Report.Until}}{{with .Report.Cluster}}, cluster {{.}}{{end}}</span></div>
<section class="card"><h2>Summary</h2>
<ul class="lines">{{range .Report.Summary}}<li>{{.}}</li>{{end}}</ul>
</section>
{{range $i, $s := .Sections}}<section class="card" aria-labelledby="h-{{$i}}"><h2 id="h-{{$i}}">{{.Title}}{{if .Rows}} <span class="count">({{len .Rows}}{{if .More}}, {{.More}} more{{end}})</span>{{end}}</h2>
{{if .Rows}}<div class="scroll" tabindex="0" role="group" aria-labelledby="h-{{$i}}"><table>
{{with .Note}}<caption>{{.}}</caption>{{end}}
<thead><tr>{{range .Head}}<th scope="col">{{.}}</th>{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody></table></div>{{else}}<p class="none">None.</p>{{end}}
</section>
{{end}}`)
})

// writeReport writes a report as one HTML file.
func writeReport(w io.Writer, r *wire.PeriodReport) error {
	sections := sectionsOf(r)
	for i := range sections {
		for j, h := range sections[i].Head {
			sections[i].Head[j] = h[:1] + strings.ToLower(h[1:])
		}
	}
	return page.Write(w, page.File{Title: "fenced: report", Made: r.Until, Foot: "Written by fencectl report -o html."}, reportTemplate(),
		map[string]any{"Report": r, "Sections": sections})
}
