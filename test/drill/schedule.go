package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// fault is one thing that goes wrong, and is over after some time.
type fault struct {
	// At is when, since the storm began; if After is set, since so many events of that kind have happened in the storm.
	At    time.Duration
	After kind
	Times int
	Lasts time.Duration // 0: for good, or until the host is off
	What  string        // what happens, and to whom, in words that apply reads
}

func (f fault) String() string {
	when := fmt.Sprintf("%.2fs", f.At.Seconds())
	if f.After != "" {
		when += fmt.Sprintf(" after %s number %d", f.After, f.Times)
	}
	if f.Lasts == 0 {
		return when + ": " + f.What
	}
	return fmt.Sprintf("%s: %s for %.1fs", when, f.What, f.Lasts.Seconds())
}

// storm is how long faults begin, and healedAfter when the last of them is ended, whatever it is.
const (
	storm       = 35 * time.Second
	healedAfter = 65 * time.Second
)

var hostNames = []string{"host-1", "host-2", "host-3", "host-4", "host-5"}

// draw draws a schedule. The bastions of a fault are named, or are the owner or the other one at the moment at which it begins.
func draw(seed uint64) (all []fault) {
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	upTo := func(d time.Duration) time.Duration {
		return time.Duration(r.Int64N(int64(d))).Round(100 * time.Millisecond)
	}
	if seed%4 == 0 { // what is sent right before a long partition may arrive when that heals: the run gives up and powers on 42 s after it has sent its DELETE
		lasts := 20*time.Second + upTo(18*time.Second)
		if r.IntN(3) > 0 {
			lasts = 43*time.Second + upTo(7*time.Second)
		}
		all = append(all,
			fault{At: upTo(2 * time.Second), What: "hang " + hostNames[0]},
			fault{After: saved(remediate.BackupNode), Times: 1, At: time.Duration(6+r.IntN(16)) * time.Millisecond, Lasts: lasts, What: pick(mute, mute, mute, cut) + " owner" + pick(">", ">", "-") + api})
		if r.IntN(4) == 0 {
			all = append(all, fault{After: saved(remediate.IsolateNode), Times: 1, At: upTo(20 * time.Second), Lasts: time.Second + upTo(25*time.Second), What: pick("kill", "stop") + " owner"})
		}
		return all
	}
	order := r.Perm(len(hostNames))
	for _, i := range order[:1+r.IntN(3)] {
		all = append(all, fault{At: upTo(storm / 2), What: "hang " + hostNames[i]})
		if r.IntN(3) == 0 { // it goes off some time after its BMC has accepted the command
			all = append(all, fault{Lasts: time.Second + upTo(6*time.Second), What: "late " + hostNames[i]})
		}
	}
	for range 4 + r.IntN(5) {
		f := fault{At: upTo(storm)}
		if r.IntN(3) > 0 { // most of what can go wrong, can do so around the steps of a run
			f.At, f.After, f.Times = upTo(5*time.Second), []kind{command, power, deletion, claim}[r.IntN(4)], 1+r.IntN(3)
			if r.IntN(2) == 0 { // in the moment in which something is about to be done
				f.After = saved([]remediate.Action{remediate.SendOff, remediate.BackupNode, remediate.IsolateNode, remediate.IsolateNode, remediate.SendOn, remediate.RestoreTargetNode}[r.IntN(6)])
				f.At = upTo(time.Second) / time.Duration(1+r.IntN(100))
			}
		}
		f.Lasts = time.Second + upTo(8*time.Second)
		if r.IntN(2) == 0 { // longer than a claim
			f.Lasts = 16*time.Second + upTo(14*time.Second)
		}
		bastion := pick("owner", "owner", "other", one, two)
		to := pick(api, bmc, "etcd", "all", members[r.IntN(3)])
		way := pick("-", ">", "<")
		switch r.IntN(12) {
		case 0, 1, 2, 3:
			f.What = pick(cut, cut, mute) + " " + bastion + way + to
		case 4:
			f.What = pick(cut, mute) + " " + pick(members...) + way + "etcd"
		case 5:
			f.What = lossy + " " + bastion + way + pick(api, bmc, "etcd", "all")
		case 6:
			f.What = "slow " + pick(bastion, bastion, api, bmc, members[0])
		case 7, 8:
			f.What = "kill " + bastion
		case 9, 10:
			f.What = "stop " + bastion
		case 11:
			f.What = pick("kill", "stop") + " " + pick(members...)
		}
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b fault) int {
		return cmp.Or(strings.Compare(string(a.After), string(b.After)), cmp.Compare(a.Times, b.Times), cmp.Compare(a.At, b.At))
	})
	return all
}
