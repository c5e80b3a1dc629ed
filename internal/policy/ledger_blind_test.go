package policy

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// TestLedgerTrialCanFail keeps one kind of event from the ledger: the comparison
// that TestLedger makes must find out, or it proves nothing about that kind.
// Hosts take no part in any judgement.
func TestLedgerTrialCanFail(t *testing.T) {
	kinds := slices.DeleteFunc(slices.Compact(slices.Clone(worldKinds)), func(kind string) bool { return kind == "Host" })
	for _, kind := range append(kinds, "runs", "readsOff", "time") {
		t.Run(kind, func(t *testing.T) {
			found := false
			for seed := 0; seed < 1000 && !found; seed++ { // the same ones each time
				found = rapid.Custom(func(t *rapid.T) bool { return notices(t, kind) }).Example(seed)
			}
			assert.True(t, found)
		})
	}
}

// notices says whether the comparison sees what the ledger was not told.
func notices(t *rapid.T, kind string) bool {
	w := newTrial(Rules{NodesCountAsMembers: true})
	w.populate(t)
	at := w.now
	switch kind {
	case "runs":
		w.runs = []OpenRun{{ID: "r", Node: of(t, "node", worldNodes...)}}
	case "readsOff":
		for _, node := range worldNodes {
			w.readsOff[node] = true
		}
	case "time":
		var ok bool
		if at, ok = w.l.Next(); !ok {
			return false
		}
	default:
		for range 4 {
			id, value := drawOf(t, kind, w.now)
			w.model.apply(Change{ID: id, Value: value})
		}
	}
	return !reflect.DeepEqual(Decide(w.snapshot(), at).Checks, w.l.Report(w.now).Checks)
}
