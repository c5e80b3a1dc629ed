package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
)

// groupFlags name Nodes by their labels, in place of NODE.
type groupFlags struct {
	wire.Group
	dryRun bool
}

func (g *groupFlags) flags(cmd *cobra.Command) {
	for name, flag := range map[string]struct {
		to   *string
		help string
	}{
		"selector":    {&g.Selector, "all Nodes with these labels, KEY=VALUE,..., in place of NODE"},
		"zone":        {&g.Zone, "all Nodes of this zone (the label guards.zoneKey), in place of NODE"},
		"all-in-rack": {&g.Rack, "all Nodes of this rack (the label guards.rackKey), in place of NODE"},
	} {
		cmd.Flags().StringVar(flag.to, name, "", flag.help)
		must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	cmd.Flags().BoolVar(&g.dryRun, "dry-run", false, "list the Nodes of --selector, --zone or --all-in-rack, and change nothing")
}

// used reports whether the command line has one of the flags, even an empty one: a variable may not have been set.
func (g *groupFlags) used(cmd *cobra.Command) bool {
	flags := cmd.Flags()
	return flags.Changed("selector") || flags.Changed("zone") || flags.Changed("all-in-rack")
}

// args takes no name beside the labels, and labels that Nodes can have.
func (g *groupFlags) args(cmd *cobra.Command, args []string) error {
	if len(args) > 0 || cmd.Flags().Changed("machine") {
		return usageError(errors.New(cmd.Name()+" takes a name, or --selector, --zone or --all-in-rack"), cmd.CommandPath()+" --zone ZONE")
	}
	if err := api.CheckGroup(g.Group); err != nil {
		return usageOf(err)
	}
	return nil
}

// typed is the group as it was typed on the command line.
func (g *groupFlags) typed() string {
	switch {
	case g.Zone != "":
		return "--zone " + g.Zone
	case g.Rack != "":
		return "--all-in-rack " + g.Rack
	}
	return "--selector " + g.Selector
}

// groupTable lists the Nodes of an order about labels, and those of which nobody knows whether it means them.
func (c *cli) groupTable(r wire.OrderResult, now time.Time) *table {
	t := newTable("NODE", "CHANGED", "UNTIL", "RUN", "NOTE")
	t.spare = []string{"RUN"}
	for _, n := range r.Nodes {
		t.add(n.Node, yesNo(n.Changed), c.when(n.Until, now), orDash(n.Run), orDash(n.Note))
	}
	for _, name := range r.Unlabelled {
		t.add(name, "no", "-", "-", "it has no Node, so nobody knows its labels")
	}
	return t
}

// parseUntil reads the end of a pause or a hold: a moment, or a time of the day, which is the next one here.
func parseUntil(text string, now time.Time) (time.Duration, error) {
	end, err := time.Parse(time.RFC3339, text)
	if err != nil {
		clock, wrong := time.ParseInLocation("15:04", text, now.Location())
		if wrong != nil {
			return 0, fmt.Errorf("%q is no time like 18:00, 2026-01-31T18:00:00Z or 2026-01-31T18:00:00+01:00", text)
		}
		if end = on(now, 0, clock); !end.After(now) {
			end = on(now, 1, clock)
		}
	}
	if !end.After(now) {
		return 0, fmt.Errorf("%s is over", text)
	}
	return end.Sub(now), nil
}

// on is a time of the day so many days later. Of one that there is twice it is the second, and for one that is left out, because the clock
// is set forward, a later one: no stop ends early.
func on(now time.Time, days int, clock time.Time) time.Time {
	in := func(zone *time.Location) time.Time {
		return time.Date(now.Year(), now.Month(), now.Day()+days, clock.Hour(), clock.Minute(), 0, 0, zone)
	}
	at := in(now.Location())
	again, want := at.Add(time.Hour), in(time.UTC).Format(time.DateTime)
	if at.Format(time.DateTime) < want || again.Format(time.DateTime) == want {
		return again
	}
	return at
}
