package timeline

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// deedsOfOne is how many deeds are kept of one run. One that is repeated at once is one.
const deedsOfOne = 40

// deed is a power command of a run, or a wait of it that is over.
type deed struct {
	what     string
	at, last time.Time
	count    int
	wait     bool
}

// commands are the power commands, for people.
var commands = map[remediate.Action]string{remediate.SendOff: "Off", remediate.SendOn: "On"}

// addDeed takes in an event of a run. A command is announced before it is sent, so one that then fails is told as that
// alone. n.mu is held.
func (n *Notes) addDeed(e event.Event, message string) {
	command := commands[e.Action]
	list := n.deeds[e.Run]
	switch {
	case e.Type == event.Waited:
		list = append(list, deed{what: message, at: e.At, last: e.At, count: 1, wait: true})
	case e.Type == event.Acting && command != "":
		list = addCommand(list, command+" sent", e.At)
	case e.Type == event.Failed && command != "":
		list = addCommand(takeBack(list, command+" sent"), command+" failed", e.At)
	default:
		return
	}
	n.deeds[e.Run] = list[max(0, len(list)-deedsOfOne):]
	if len(n.deeds) > noteTargets { // the IDs of runs are in the order of their starts
		delete(n.deeds, slices.Min(slices.Collect(maps.Keys(n.deeds))))
	}
}

// addCommand adds a command, or counts it if it repeats the last one.
func addCommand(list []deed, what string, at time.Time) []deed {
	if i := len(list) - 1; i >= 0 && list[i].what == what {
		list[i].count++
		list[i].last = at
		return list
	}
	return append(list, deed{what: what, at: at, last: at, count: 1})
}

// takeBack removes a command that was announced last.
func takeBack(list []deed, what string) []deed {
	i := len(list) - 1
	switch {
	case i < 0 || list[i].what != what:
		return list
	case list[i].count > 1:
		list[i].count--
		return list
	}
	return list[:i]
}

// clock is how a time of day is written.
const clock = time.TimeOnly + "Z"

// text tells a deed to people.
func (d deed) text() string {
	switch {
	case d.wait:
		return d.what
	case d.count > 1:
		return fmt.Sprintf("%s %s, and again until %s (%d times)", d.what, d.at.UTC().Format(clock), d.last.UTC().Format(clock), d.count)
	}
	return d.what + " " + d.at.UTC().Format(clock)
}

// readOff tells by which reads a host was proven off.
func readOff(reads []wire.OffRead) string {
	text := "read Off twice"
	if len(reads) == 2 {
		text += " " + reads[0].At.UTC().Format(clock) + " and " + reads[1].At.UTC().Format(clock)
	}
	return text
}

// Between is what a run did between two times, and what it waited for, oldest first.
func (n *Notes) Between(run string, from, to time.Time) (course []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.deeds[run] {
		if !d.at.Before(from) && !d.at.After(to) {
			course = append(course, d.text())
		}
	}
	return course
}

// AddCourse adds to the steps of a run what was done in them. What was done while the run was Waiting or Held is with the
// step before.
func (n *Notes) AddCourse(r *wire.RunRecord) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.deeds[r.ID] {
		for i := range slices.Backward(r.Steps) {
			if s := &r.Steps[i]; !s.Started.After(d.at) {
				s.Course = append(s.Course, d.text())
				break
			}
		}
	}
	for i := len(r.Steps) - 1; i > 0; i-- { // the record has the proof of the last attempt
		before := &r.Steps[i-1]
		if r.Steps[i].Step != string(remediate.DeleteNode) || before.Step != string(remediate.PowerOff) {
			continue
		}
		switch remediate.ProofKind(r.Proof) {
		case remediate.ProofBMC, remediate.ProofDevice:
			before.Course = append(before.Course, readOff(r.OffReads))
		case remediate.ProofHuman:
			before.Course = append(before.Course, "confirmed off by "+r.ConfirmedBy)
		}
		break
	}
}
