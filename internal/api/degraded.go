package api

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// title names the check for people; those of Nodes have no namespace.
func (k *CheckStatus) title() string {
	return "check " + strings.TrimPrefix(k.Namespace+"/"+k.Name, "/")
}

// Degraded says in sentences why this fenced does not do, or may not be doing,
// its whole job; empty when it does. `fencectl status` exits 2 on any.
func (s Status) Degraded() []string {
	var why []string
	add := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	why = append(why, s.notArmedSentences()...)
	if s.Paused {
		add("paused: %s", s.PausedReason)
	}
	if a := s.Audit; a != nil {
		add("nothing destructive is done: the audit log cannot be written since %s: %s", a.Since.UTC().Format(time.RFC3339), a.Problem)
	}
	for _, c := range s.Clusters {
		if c.Paused && !s.Paused {
			add("cluster %s is paused: %s", c.Name, c.PausedReason)
		}
		if c.Problem != "" {
			add("cluster %s: %s", c.Name, c.Problem)
		}
		if c.Aside != "" {
			add("cluster %s is left to other instances: %s", c.Name, c.Aside)
		}
		if c.DeletionsOverdue > 0 {
			add("cluster %s: %d deleted Machines, or their Nodes, still exist after guards.deletionTimeout", c.Name, c.DeletionsOverdue)
		}
		for _, h := range c.Holds {
			if h.Quarantine {
				add("%s in %s is in quarantine: %s", cmp.Or(h.Node, h.Machine), c.Name, h.Reason)
			}
		}
		if c.Mode == "respond" { // where checks start nothing
			continue
		}
		for i := range c.Checks {
			if text := c.Checks[i].trouble(); text != "" {
				add("%s in %s %s", c.Checks[i].title(), c.Name, text)
			}
		}
	}
	why = append(why, blockedSentences(s.Blocked)...)
	for i := range s.Runs {
		if text := s.Runs[i].trouble(); text != "" {
			add("%s", text)
		}
	}
	if n := s.BMCs.NotDependable; n > 0 {
		add("%d of %d BMCs are not dependable: fencectl bmc list", n, s.BMCs.Total)
	}
	return why
}

// trouble says why fenced does not do what the check is there for, "" if it does. One that is paused, for
// maintenance or because it was left to others, is as somebody wants it.
func (k *CheckStatus) trouble() string {
	switch {
	case k.State == "Invalid":
		return fmt.Sprintf("is invalid and protects no target: %s. fencectl check-config shows it", k.Message)
	case k.State == "Disabled":
		return fmt.Sprintf("is disabled and protects no target: %s. fencectl check-config shows it", k.Message)
	case k.Allowed || k.State != "" && k.State != "Active":
		return ""
	}
	limit := ""
	if k.Limit != "" {
		limit = ", " + k.Limit
	}
	return fmt.Sprintf("allows no remediation (%s): %d of %d not healthy%s. Find the common cause: fencectl plan",
		cmp.Or(k.Reason, "ShortCircuit"), k.Expected-k.Healthy, k.Expected, limit)
}

// notArmedSentences name each cluster in which fenced begins nothing by itself.
func (s Status) notArmedSentences() (why []string) {
	if s.Armed {
		return nil
	}
	for i := range s.Clusters {
		if c := &s.Clusters[i]; !c.Armed {
			why = append(why, fmt.Sprintf("cluster %s is in mode %s and not armed: fenced fences nothing there by itself. To arm it: fencectl arm --cluster %s --reason WHY", c.Name, c.Mode, c.Name))
		}
	}
	if len(why) == 0 {
		return []string{"not armed: fenced knows no cluster"}
	}
	return why
}

// trouble says why an open run is not on its way, "" if it is.
func (r *RunStatus) trouble() string {
	text := fmt.Sprintf("run %s of %s ", r.ID, cmp.Or(r.Node, r.Machine))
	switch {
	case r.Step == ResultHeld:
		text += "is held: " + r.Reason
	case r.Step == ResultWaiting:
		text += "waits: " + r.Reason
	case r.LastError == nil:
		return ""
	default:
		text += "is in step " + r.Step
	}
	if e := r.LastError; e != nil {
		text += fmt.Sprintf("; last error at %s: %s", e.At.UTC().Format(time.RFC3339), e.Text())
	}
	return text
}
