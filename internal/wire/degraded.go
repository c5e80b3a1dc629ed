package wire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Degradation is one reason why fenced does not do, or may not be doing, its whole job, and what a person does
// next: a command, or what to do and the command after it. None is without.
type Degradation struct{ What, Next string }

func (d Degradation) String() string { return strings.TrimSuffix(d.What, ".") + ". Next: " + d.Next }

// Degraded says in sentences why this fenced does not do, or may not be doing, its whole job, each with what
// comes next; empty when it does. `fencectl status` exits 2 on any.
func (s Status) Degraded() (why []string) {
	for _, d := range s.Degradations() {
		why = append(why, d.String())
	}
	return why
}

// Degradations are the sentences of Degraded, with what comes next apart.
func (s Status) Degradations() []Degradation {
	list := s.notArmed()
	if s.Paused {
		list = append(list, Degradation{"paused: " + s.PausedReason, cmp.Or(s.PausedNext, "fencectl resume --reason WHY")})
	}
	if a := s.Audit; a != nil {
		list = append(list, Degradation{"nothing destructive is done: the audit log cannot be written since " + moment(a.Since) + ": " + a.Problem,
			cmp.Or(a.Next, "journalctl -u fenced")})
	}
	if r := s.Reload; r != nil {
		list = append(list, r.degradation())
	}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		list = append(list, c.degradations(s.PausedReason)...)
		if c.Cover != nil && c.Mode != "respond" { // there checks start nothing
			list = append(list, s.uncovered(c)...)
		}
	}
	list = append(list, blockedDegradations(s.Blocked)...)
	for i := range s.Runs {
		list = append(list, s.Runs[i].degradations()...)
	}
	return append(list, s.BMCs.degradations()...)
}

// notArmed names each cluster in which fenced begins nothing by itself.
func (s Status) notArmed() (list []Degradation) {
	if s.Armed {
		return nil
	}
	for i := range s.Clusters {
		if c := &s.Clusters[i]; !c.Armed {
			list = append(list, Degradation{fmt.Sprintf("cluster %s is in mode %s and not armed: fenced fences nothing there by itself", c.Name, c.Mode),
				"fencectl arm --cluster " + c.Name + " --reason WHY"})
		}
	}
	if len(list) == 0 {
		return []Degradation{{"not armed: fenced knows no cluster", "add one to fenced.yaml: fencectl init"}}
	}
	return list
}

// degradation says what the daemon runs on while it refuses its files: the next restart is then no way out.
func (r *ReloadStatus) degradation() Degradation {
	text := fmt.Sprintf("the reload at %s was refused: %s. Until this is corrected or undone, fenced runs on what it had before", moment(r.Since), strings.TrimSuffix(r.Problem, "."))
	if r.Restart != "" {
		text += ", and " + r.Restart
	}
	return Degradation{text, cmp.Or(r.Next, "fenced --check-config")}
}

// degradations are those of one cluster. paused is the pause that was said already, of all clusters.
func (c *ClusterStatus) degradations(paused string) (list []Degradation) {
	add := func(what, next string) { list = append(list, Degradation{what, next}) }
	if c.Paused && (paused == "" || c.PausedReason != paused) {
		add("cluster "+c.Name+" is paused: "+c.PausedReason, cmp.Or(c.PausedNext, "fencectl resume --cluster "+c.Name+" --reason WHY"))
	}
	if c.Problem != "" {
		add("cluster "+c.Name+": "+c.Problem, cmp.Or(c.Next, "journalctl -u fenced"))
	}
	if c.FilesRefused != "" {
		add("cluster "+c.Name+": nothing begins there, because a protection or a budget may be missing; open runs go on. "+c.FilesRefused, CorrectFiles)
	}
	if c.Aside != "" {
		add("cluster "+c.Name+" is left to other instances: "+c.Aside, "fencectl status on the other instance; without one, start fenced on another host")
	}
	if c.DeletionsOverdue > 0 {
		add(fmt.Sprintf("cluster %s: %d deleted Machines, or their Nodes, still exist after guards.deletionTimeout", c.Name, c.DeletionsOverdue),
			"journalctl -u fenced FENCED_REASON=DeletionOverdue names them; read the log of their controller, and remove no finalizer while the host may run")
	}
	for _, h := range c.Holds {
		if o := (Order{Cluster: c.Name, Node: h.Node, Machine: h.Machine}); h.Quarantine {
			add(fmt.Sprintf("%s in %s is in quarantine: %s", o.Of(), c.Name, h.Reason),
				"find out why its runs did not help: "+o.Command("timeline")+"; then "+o.Command("release")+" --reason WHY")
		}
	}
	if c.Mode == "respond" { // where checks start nothing
		return list
	}
	for i := range c.Checks {
		if d := c.Checks[i].trouble(c.Name); d.What != "" {
			add(fmt.Sprintf("check %s in %s %s", c.Checks[i].title(), c.Name, d.What), d.Next)
		}
	}
	return list
}

// CorrectFiles is what to do about a file of policies.d or hosts.d that the daemon refuses.
const CorrectFiles = "correct it, run fenced --check-config, then systemctl reload fenced"

// title names the check as fencectl takes it; those of Nodes have no namespace.
func (k *CheckStatus) title() string { return strings.TrimPrefix(k.Namespace+"/"+k.Name, "/") }

// trouble returns why fenced does not do what the check is there for, or nothing. One that is paused, for
// maintenance or because it was left to others, is as somebody wants it.
func (k *CheckStatus) trouble(cluster string) Degradation {
	look := "fencectl check-config " + k.title() + " --cluster " + cluster
	switch {
	case k.State == "Invalid":
		return Degradation{"is invalid and protects no target: " + k.Message, look}
	case k.State == "Disabled":
		return Degradation{"is disabled and protects no target: " + k.Message, look}
	case k.SelectsNothing:
		return Degradation{"selects nothing, so it protects no target", look}
	case k.LimitIsZero != "":
		return Degradation{"protects no target: " + k.LimitIsZero, "write a number in place of the percentage, or a larger one: " + look}
	case k.Allowed && k.UnknownCondition != "":
		return Degradation{"has a rule that never takes effect: " + k.UnknownCondition, look}
	case k.Allowed || k.State != "" && k.State != "Active":
		return Degradation{}
	}
	limit := ""
	if k.Limit != "" {
		limit = ", " + k.Limit
	}
	return Degradation{fmt.Sprintf("allows no remediation (%s): %d of %d not healthy%s", cmp.Or(k.Reason, "ShortCircuit"), k.Expected-k.Healthy, k.Expected, limit),
		"find the common cause: fencectl plan --cluster " + cluster}
}

// uncovered says what of a cluster is not protected. A check that is paused is as somebody wants it.
func (s Status) uncovered(c *ClusterStatus) (list []Degradation) {
	if c.Cover.Covered == 0 && !slices.ContainsFunc(c.Checks, func(k CheckStatus) bool { return k.State == "Paused" }) {
		return []Degradation{{"no check covers any Node of cluster " + c.Name + ": fenced fences nothing there by itself",
			"see which checks it knows: fencectl check-config --cluster " + c.Name}}
	}
	for _, g := range c.Cover.Gaps {
		if s.tellsOf(c.Name, g) {
			continue
		}
		who := g.Node + " in " + c.Name + " is covered by a check, and could not be fenced"
		if g.Count > 1 {
			who = fmt.Sprintf("%d Nodes in %s are covered by checks, and could not be fenced, %s among them", g.Count, c.Name, g.Node)
		}
		list = append(list, Degradation{fmt.Sprintf("%s: %s: %s", who, g.Reason, g.Message), cmp.Or(g.Next, "fencectl nodes --cluster "+c.Name)})
	}
	return list
}

// tellsOf reports whether another line says what comes next for the only Node of a gap: it is blocked for the same reason, or
// its run has stopped.
func (s Status) tellsOf(cluster string, g NodeGap) bool {
	return g.Count == 1 && (slices.ContainsFunc(s.Blocked, func(b Blocked) bool {
		return b.Cluster == cluster && cmp.Or(b.Node, b.Machine) == g.Node && b.Reason == g.Reason
	}) || slices.ContainsFunc(s.Runs, func(r RunStatus) bool {
		return r.Cluster == cluster && cmp.Or(r.Node, r.Machine) == g.Node && len(r.degradations()) > 0
	}))
}

// blockedDegradations says what is not remediated, and why. Targets of one check with the same reason
// have one line, so that a site that is down does not fill the screen.
func blockedDegradations(list []Blocked) (all []Degradation) {
	type group struct{ cluster, check, run, reason string }
	members := map[group][]Blocked{}
	var order []group
	for _, b := range list {
		g := group{b.Cluster, b.Check, b.Run, b.Reason}
		if len(members[g]) == 0 {
			order = append(order, g)
		}
		members[g] = append(members[g], b)
	}
	for _, g := range order {
		first, n := members[g][0], len(members[g])
		var what string
		switch name := cmp.Or(first.Node, first.Machine); {
		case g.run != "":
			what = fmt.Sprintf("run %s of %s may not go on: ", g.run, name)
		case n == 1:
			what = fmt.Sprintf("%s in %s is not remediated (%s): ", name, g.cluster, g.check)
		default:
			what = fmt.Sprintf("%d targets in %s are not remediated (%s), %s and others: ", n, g.cluster, g.check, name)
		}
		all = append(all, Degradation{what + first.cause(), first.next()})
	}
	return all
}

// cause is the reason with all that is known of it.
func (b Blocked) cause() string {
	text := fmt.Sprintf("%s: %s; since %s", b.Reason, b.Message, moment(b.Since))
	if !b.NextTry.IsZero() {
		text += ", next try " + moment(b.NextTry)
	}
	return text
}

// next is what a person can do. What passes by itself needs nobody.
func (b Blocked) next() string {
	text := OrderOn(b.Cluster, b.Node, b.Machine).Command("explain") + " shows every gate"
	if !b.NextTry.IsZero() {
		text += "; fenced tries again by itself"
	}
	return cmp.Or(b.Next, text)
}

// degradations says why an open run is not on its way; nothing if it is.
func (r *RunStatus) degradations() []Degradation {
	text := fmt.Sprintf("run %s of %s ", r.ID, cmp.Or(r.Node, r.Machine))
	switch {
	case r.Step == ResultHeld:
		text += "is held: " + r.Reason
	case r.Step == ResultWaiting:
		text += "waits: " + r.Reason
		if !r.NextTry.IsZero() {
			text += ", next try " + moment(r.NextTry)
		}
	case r.LastError == nil:
		return nil
	default:
		text += "is in step " + r.Step
	}
	if e := r.LastError; e != nil {
		text += fmt.Sprintf("; last error at %s: %s", moment(e.At), e.Text())
	}
	return []Degradation{{text, cmp.Or(r.Next, "fencectl timeline "+r.ID)}}
}

// degradations says how many BMCs a fence could not rely on, and which refuse their account.
func (n BMCCount) degradations() (list []Degradation) {
	for _, a := range n.Accounts {
		list = append(list, Degradation{a.text(), cmp.Or(a.Next, "fencectl bmc list")})
	}
	if n.NotDependable > 0 {
		list = append(list, Degradation{fmt.Sprintf("%d of %d BMCs are not dependable", n.NotDependable, n.Total), "fencectl bmc list"})
	}
	return list
}

// moment writes a time of a sentence.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
