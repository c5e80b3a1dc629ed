package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

// takenOver is a good history: the owner switches a host off and is lost, the other waits, isolates the Node and brings the host back.
func takenOver() []event {
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return []event{
		{At: at(1), Kind: claim, By: one, Epoch: 10},
		{At: at(2), Kind: hang, Host: "a"},
		{At: at(8), Kind: command, By: one, Host: "a"},
		{At: at(9), Kind: power, Host: "a"},
		{At: at(24), Kind: end, By: one},
		{At: at(25), Kind: claim, By: two, Epoch: 20, Wait: true},
		{At: at(31), Kind: command, By: two, Host: "a"},
		{At: at(34), Kind: deletion, By: two, Host: "a", UID: "u1"},
		{At: at(36), Kind: command, By: two, Host: "a", On: true},
		{At: at(36), Kind: power, Host: "a", On: true},
		{At: at(40), Kind: healthy, Host: "a"},
		{At: at(50), Kind: heal},
		{At: at(60), Kind: back, Host: "a"},
	}
}

func TestCheckAcceptsAHandOver(t *testing.T) {
	assert.Empty(t, check(takenOver(), times))
	open := times
	open.open = true
	assert.Empty(t, check(takenOver()[:7], open), "it may still come back")
}

// An Off is sent while the host hangs, and its BMC carries it out when the host is healthy: the host must come back once more.
func TestCheckAcceptsALateOff(t *testing.T) {
	t.Parallel()
	late := append(takenOver()[:2],
		event{At: 8 * time.Second, Kind: command, By: one, Host: "a"},
		event{At: 9 * time.Second, Kind: healthy, Host: "a"},
		event{At: 10 * time.Second, Kind: power, Host: "a"},
		event{At: 14 * time.Second, Kind: command, By: one, Host: "a", On: true},
		event{At: 14 * time.Second, Kind: power, Host: "a", On: true},
		event{At: 30 * time.Second, Kind: heal},
	)
	back := event{At: 40 * time.Second, Kind: back, Host: "a"}
	assert.NotEmpty(t, check(append(late, back), times), "it is not healthy again")
	assert.Empty(t, check(append(late, event{At: 39 * time.Second, Kind: healthy, Host: "a"}, back), times))
	assert.NotEmpty(t, check(append(late, event{At: 31 * time.Second, Kind: power, Host: "a"}), times), "nobody has sent it")
}

// Each of these histories breaks one rule, and the checker says which.
func TestCheckNotices(t *testing.T) {
	t.Parallel()
	find := func(all []event, k kind, by string) int {
		return slices.IndexFunc(all, func(e event) bool { return e.Kind == k && e.By == by })
	}
	before := func(all []event, i int, e event) []event {
		e.At = all[i].At
		return slices.Insert(all, i, e)
	}
	for _, c := range []struct {
		name, says string
		spoil      func([]event) []event
	}{
		{"a command of who never owned the cluster", "while one owns the cluster", func(all []event) []event {
			return before(all, find(all, end, one), event{Kind: command, By: two, Host: "a"})
		}},
		{"a command of nobody known", "of somebody, while one owns", func(all []event) []event {
			return before(all, find(all, end, one), event{Kind: command, By: "somebody", Host: "a"})
		}},
		{"a command before any claim", "before anybody owned the cluster", func(all []event) []event { return all[1:] }},
		{"a command between two claims", "after its claim of epoch 10 had ended", func(all []event) []event {
			return before(all, find(all, claim, two), event{Kind: command, By: one, Host: "a"})
		}},
		{"a command of the owner before, after the claim of the next", "of one, while two owns the cluster", func(all []event) []event {
			return before(all, find(all, command, two), event{Kind: command, By: one, Host: "a"})
		}},
		{"a command before the delay of a takeover is over", "and the owner before it was lost", func(all []event) []event {
			i := find(all, command, two)
			all[i].At = all[i].At - 2*time.Second
			return all
		}},
		{"two owners", "claims the cluster while one owns it", func(all []event) []event {
			i := find(all, end, one)
			return slices.Delete(all, i, i+1)
		}},
		{"an old epoch", "epoch 10 of two follows epoch 10", func(all []event) []event { all[find(all, claim, two)].Epoch = 10; return all }},
		{"a deletion by the owner before", "(deletion, on: false) of one", func(all []event) []event { all[find(all, deletion, two)].By = one; return all }},
		{"a deletion while the host is on", "is deleted, and the host is on", func(all []event) []event { all[find(all, deletion, two)].On = true; return all }},
		{"a deletion after the host came back on", "is deleted, and the host is on", func(all []event) []event {
			d := all[find(all, deletion, two)]
			return before(all, find(all, heal, ""), event{Kind: deletion, By: two, Host: "a", UID: d.UID + "'"})
		}},
		{"a Node that is deleted twice", "is deleted twice", func(all []event) []event {
			d := all[find(all, deletion, two)]
			return before(all, find(all, deletion, two), d)
		}},
		{"a deletion without a precondition", "without the UID", func(all []event) []event { all[find(all, deletion, two)].UID = ""; return all }},
		{"a command to a healthy host", "b, which never hung, gets a command", func(all []event) []event {
			return before(all, find(all, heal, ""), event{Kind: command, By: two, Host: "b", On: true})
		}},
		{"a healthy host that goes off", "b goes off, and it does not hang", func(all []event) []event {
			return before(all, find(all, heal, ""), event{Kind: power, Host: "b"})
		}},
		{"the Node of a healthy host", "the Node of b is deleted, which never hung", func(all []event) []event {
			return before(all, find(all, heal, ""), event{Kind: deletion, By: two, Host: "b", UID: "u2"})
		}},
		{"a host that is switched off after it came back", "and it is healthy again", func(all []event) []event {
			return before(all, find(all, heal, ""), event{Kind: command, By: two, Host: "a"})
		}},
		{"a host that stays away", "a never comes back", func(all []event) []event { return all[:len(all)-1] }},
		{"a host that comes back late", "later than", func(all []event) []event { all[len(all)-1].At = 300 * time.Second; return all }},
		{"a host that hangs on", "is not healthy again", func(all []event) []event {
			return slices.DeleteFunc(all, func(e event) bool { return e.Kind == healthy })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong := check(c.spoil(takenOver()), times)
			require.NotEmpty(t, wrong)
			assert.Contains(t, strings.Join(wrong, "\n"), c.says)
		})
	}
}

// A schedule is the same for the same seed, and names only who is there.
func TestDraw(t *testing.T) {
	t.Parallel()
	whats := map[string]bool{}
	for seed := range uint64(300) {
		all := draw(seed)
		assert.Equal(t, all, draw(seed))
		hangs := 0
		for _, f := range all {
			what, whom, _ := strings.Cut(f.What, " ")
			whats[what] = true
			if what == "hang" {
				hangs++
			}
			assert.NotEmpty(t, whom)
			assert.LessOrEqual(t, f.At, storm)
		}
		assert.Positive(t, hangs, "nobody would be fenced")
	}
	assert.Len(t, whats, 8, "each kind of fault is drawn: %v", whats)
}

func TestBetween(t *testing.T) {
	assert.Equal(t, []link{{one, api}, {api, one}}, between(one, api, false))
	assert.Equal(t, []link{{one, "etcd1"}, {one, "etcd2"}, {one, "etcd3"}}, between(one, "etcd", true))
	assert.Equal(t, []link{{"etcd2", "etcd1"}, {"etcd2", "etcd3"}}, between("etcd2", "etcd", true))
	assert.Len(t, between(bmc, "all", false), 12)
}

// A mutant whose text is gone would break no rule any more.
func TestMutantsAreOfTheTree(t *testing.T) {
	root := must.Do(rig.Root())(t)
	for _, m := range mutants {
		text := must.Do(os.ReadFile(filepath.Join(root, m.file)))(t)
		assert.Equal(t, 1, strings.Count(string(text), m.is), "%s: the mutant without %q", m.file, m.rule)
	}
}
