package remediate

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	crashes = []fault{crashBeforeSave, crashAfterSave, crashAfterAct}
	engine  = []fault{crashBeforeSave, crashAfterSave, crashAfterAct, saveFails, saveAnswerLost, actFails, answerLost}
	power   = []fault{lostPower, newSession, lie, foreignOn, foreignOff, reregister, deaf}
	cluster = []fault{lostAPI, slowLook, conflict, replaced}
)

func join(lists ...[]fault) (out []fault) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// variants are the searches: each a world, and what may go wrong in it.
var variants = []variant{
	{name: "delete, everything three times", states: 215_900, faults: join(engine, power, cluster), budget: 3, want: "Done"},
	{name: "taint", states: 15_000, isolation: IsolateTaint, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "Metal3", states: 7_900, bmh: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "sick, not dead", states: 42_600, sick: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "a long lie", states: 20_400, lieFor: 100, faults: join(crashes, power), budget: 2, want: "Done"},
	{name: "a long lie about a sick host", states: 44_900, sick: true, lieFor: 100, faults: join(crashes, power), budget: 2, want: "Done"},
	{name: "a long Lease of a sick host", states: 10_500, sick: true, lease: 120, lieFor: 200, faults: join(crashes, []fault{lie, deaf, foreignOn, lostAPI}), budget: 1, want: "Done"},
	{name: "a lie about a sick host with a long Lease", states: 8_300, sick: true, ignoresOff: true, lease: 120, lieFor: 200, faults: []fault{lie}, budget: 1, want: "Held PowerOffFailed"},
	{name: "a lie about a sick host, and the API away", states: 91_800, sick: true, ignoresOff: true, lieFor: 100, faults: []fault{lie, outageShort, outageLong, lostAPI, crashAfterSave}, budget: 2, want: "Held PowerOffFailed"},
	{name: "Nodes from Git", states: 108_000, faults: join(crashes, []fault{recreated, reregister, lostAPI, foreignOn, lie, actFails}), budget: 3, want: "Done"},
	{name: "Nodes from Git, second attempt", states: 26_100, badBoots: 1, maxAttempts: 2, faults: join(crashes, []fault{recreated, lie, foreignOn, slowBoot}), budget: 2, want: "Done"},
	{name: "pods stay", states: 11_800, podsStay: true, faults: join(engine, power), budget: 2, want: "Done"},
	{name: "found off", states: 13_800, foundOff: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "found off, stays off", states: 8_800, foundOff: true, stayOff: true, faults: join(engine, power, []fault{unfenceOrder}), budget: 2, want: "Held FoundOff"},
	{name: "off only", states: 9_300, offOnly: true, faults: join(engine, power, []fault{unfenceOrder}), budget: 2, want: "Held OperatorOff"},
	{name: "API away", states: 91_900, faults: join(crashes, []fault{outageShort, outageLong, outageEver, answerLost, foreignOn}), budget: 2, runTimeout: 4 * time.Minute, want: "Done"},
	{name: "API away, taint, Metal3", states: 69_900, isolation: IsolateTaint, bmh: true, faults: join(crashes, []fault{outageShort, outageLong, outageEver, answerLost}), budget: 2, runTimeout: 4 * time.Minute, want: "Done"},
	{name: "API forbids", states: 4_000, forbidden: true, faults: join(crashes, []fault{lostPower, foreignOff}), budget: 2, want: "Aborted APIForbidden"},
	{name: "API forbids, Metal3", states: 12_200, forbidden: true, bmh: true, faults: crashes, budget: 2, want: "Held PowerOnFailed"},
	{name: "people", states: 23_100, faults: join(crashes, []fault{pause, resume, unfenceOrder, lostAPI, answerLost}), budget: 3, runTimeout: 4 * time.Minute, want: "Done"},
	{name: "people, taint, Metal3", states: 3_400, isolation: IsolateTaint, bmh: true, faults: join(crashes, []fault{pause, resume, unfenceOrder, answerLost}), budget: 2, runTimeout: 4 * time.Minute, want: "Done"},
	{name: "second attempt", states: 2_600, badBoots: 1, maxAttempts: 2, faults: join(engine, power, cluster, []fault{unfenceOrder}), budget: 1, want: "Done"},
	{name: "second attempt, taint", states: 2_200, isolation: IsolateTaint, badBoots: 1, maxAttempts: 2, faults: join(engine, power, []fault{unfenceOrder}), budget: 1, want: "Done"},
	{name: "attempts used up", states: 8_700, badBoots: 9, maxAttempts: 2, faults: join(engine, power, []fault{pause, unfenceOrder}), budget: 1, runTimeout: 5 * time.Minute, want: "Reprovisioned AttemptsExhausted"},
	{name: "attempts used up, no fallback", states: 22_200, badBoots: 9, noReplace: true, faults: join(engine, power), budget: 2, want: "Held AttemptsExhausted"},
	{name: "never off", states: 23_400, ignoresOff: true, faults: join(engine, power, cluster), budget: 2, want: "Held PowerOffFailed"},
	{name: "never off, Metal3 off", states: 4_400, ignoresOff: true, bmh: true, faults: join(engine, power), budget: 2, want: "Done"},
	{name: "never on", states: 13_500, ignoresOn: true, faults: join(engine, []fault{lostPower, foreignOn}), budget: 2, want: "Reprovisioned PowerOnFailed"},
	{name: "never on, no fallback", states: 21_200, ignoresOn: true, noReplace: true, faults: join(engine, power), budget: 2, want: "Held PowerOnFailed"},
	{name: "finalizer", states: 13_100, finalizer: 5, faults: join(engine, power), budget: 2, want: "Done"},
	{name: "finalizer for ever", states: 109_000, finalizer: -1, faults: join(crashes, []fault{lie, foreignOn, outageLong}), budget: 2, runTimeout: 4 * time.Minute, want: "Held NodeFinalizer"},
	{name: "delete the Machine", states: 1_600, deleteOnly: true, faults: join(engine, cluster, []fault{pause, outageLong, outageEver, unfenceOrder}), budget: 3, want: "Reprovisioned"},
	{name: "mark the Machine", states: 1_600, deleteOnly: true, marks: true, faults: join(engine, cluster, []fault{pause, outageLong, outageEver, unfenceOrder}), budget: 3, want: "Reprovisioned"},
	{name: "mark a control plane's Machine", states: 90, deleteOnly: true, marks: true, control: true, mayReplace: true, faults: join(engine, cluster, []fault{pause, memberLost, memberBack}), budget: 2, want: "Reprovisioned"},
	{name: "control plane", states: 10_000, isolation: IsolateTaint, control: true, faults: join(engine, power, cluster, []fault{memberLost, memberBack}), budget: 2, want: "Done"},
	{name: "delete a control plane's Machine", states: 10, deleteOnly: true, control: true, faults: join(engine, cluster), budget: 2, want: "Aborted ControlPlane"},
	{name: "attempts used up, marked", states: 8_000, marks: true, badBoots: 9, maxAttempts: 2, faults: join(engine, power, []fault{pause, unfenceOrder}), budget: 1, runTimeout: 5 * time.Minute, want: "Reprovisioned AttemptsExhausted"},
	{name: "attempts used up, control plane", states: 2_000, control: true, mayReplace: true, badBoots: 9, maxAttempts: 2, faults: join(engine, power, []fault{memberLost, memberBack}), budget: 1, want: "Held AttemptsExhausted"},
	{name: "delete the Machine, no owner", states: 9, deleteOnly: true, noReplace: true, faults: engine, budget: 2, want: "Aborted NoController"},
}

// TestExplore searches everything that the faults of each variant can do to a
// run, and checks the invariants on every transition.
func TestExplore(t *testing.T) {
	var mu sync.Mutex
	states, began := 0, time.Now()
	t.Run("variant", func(t *testing.T) {
		for _, v := range slices.Concat(variants, twoLevels, ordersGiven, twoFencers, slowBoots, confirmationLies, clocksSet, waits, crowds, nodelessWorlds, releases, withdrawals, droppedRequests, otherMachines, otherRequests, owners) {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				n := search(t, v)
				mu.Lock()
				defer mu.Unlock()
				states += n
			})
		}
	})
	took := time.Since(began)
	t.Logf("in all %d states in %v: %.0f states/s", states, took.Round(time.Millisecond), float64(states)/took.Seconds())
}

// search explores one variant and gives the number of its states.
func search(t *testing.T, v variant) int {
	t.Helper()
	if os.Getenv("FENCED_SEARCH") == "wide" { // make sim: one fault more in every world
		v.budget, v.wide = v.budget+1, true
		// With so many faults a host comes on, and its run ends, before a kubelet changes the
		// resourceVersion: that alone does not keep a late isolation away, its claim does.
		v.endsWithClaim = true
	}
	x := explore(v, Next)
	t.Logf("%d states, %d questions", len(x.nodes), x.asked)
	require.Empty(t, strings.Join(x.found, "\n"))
	assert.GreaterOrEqual(t, len(x.nodes), v.states, "the search has shrunk")
	assert.Equal(t, v.want, x.nodes[0].settled, "the end without faults")
	return len(x.nodes)
}
