package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Outcome is the result of one seed, or of many.
type Outcome struct {
	Seeds     int
	Virtual   time.Duration
	Real      time.Duration
	Rounds    int            // audits
	Faults    map[string]int // by kind
	Ends      map[string]int // of runs, by step and reason
	Actions   map[string]int // commands and writes that were audited
	Rules     map[string]int // violations, by rule
	Orders    map[string]int // by people
	Cases     map[string]int // cases in which a rule had something to forbid, by rule
	Handovers int
	Raced     int // isolated while somebody else was just switching the host on
	Misled    int // isolated after a confirmation that was wrong, or no longer true
	Lied      int // isolated because a BMC consistently reported a false Off for a dead node
	Stranded  int // at the end: Off, and covered by an open record
}

// Add adds another outcome.
func (o *Outcome) Add(p Outcome) {
	o.Seeds += p.Seeds
	o.Virtual += p.Virtual
	o.Real += p.Real
	o.Rounds += p.Rounds
	o.Handovers += p.Handovers
	o.Raced += p.Raced
	o.Lied += p.Lied
	o.Stranded += p.Stranded
	merge(&o.Faults, p.Faults)
	merge(&o.Orders, p.Orders)
	merge(&o.Cases, p.Cases)
	o.Misled += p.Misled
	merge(&o.Ends, p.Ends)
	merge(&o.Actions, p.Actions)
	merge(&o.Rules, p.Rules)
}

func merge(into *map[string]int, from map[string]int) {
	if *into == nil {
		*into = map[string]int{}
	}
	for k, n := range from {
		(*into)[k] += n
	}
}

// Table is the outcome for docs/results.md.
func (o *Outcome) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| What | How many |\n|---|---|\n")
	fmt.Fprintf(&b, "| seeds | %d |\n| virtual hours | %.0f |\n| audits | %d |\n", o.Seeds, o.Virtual.Hours(), o.Rounds)
	fmt.Fprintf(&b, "| changes of owner | %d |\n", o.Handovers)
	for _, part := range []struct {
		title string
		all   map[string]int
	}{{"faults", o.Faults}, {"orders by people", o.Orders}, {"audited", o.Actions}, {"cases of single rules", o.Cases}, {"runs ended", o.Ends}} {
		total, texts := 0, []string{}
		for _, k := range slices.SortedFunc(maps.Keys(part.all), func(a, b string) int { return part.all[b] - part.all[a] }) {
			total += part.all[k]
			texts = append(texts, fmt.Sprintf("%s %d", k, part.all[k]))
		}
		fmt.Fprintf(&b, "| %s | %d: %s |\n", part.title, total, strings.Join(texts, ", "))
	}
	fmt.Fprintf(&b, "| isolated on a consistent lie about a dead node (undetectable) | %d |\n", o.Lied)
	fmt.Fprintf(&b, "| isolated on a person's word that was wrong, or had ceased to be true | %d |\n", o.Misled)
	fmt.Fprintf(&b, "| isolated while a foreign hand switched the host on, within the 5 s of a proof | %d |\n", o.Raced)
	fmt.Fprintf(&b, "| hosts Off at the end, each with an open record | %d |\n", o.Stranded)
	broken := 0
	for _, n := range o.Rules {
		broken += n
	}
	fmt.Fprintf(&b, "| violations | %d %v |\n", broken, o.Rules)
	return b.String()
}
