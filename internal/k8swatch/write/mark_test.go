package write

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/internal/policy"
)

var (
	noon  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	later = noon.Add(time.Hour)
)

func transition(l conditionList, kind string) string {
	_, m := l.find(kind)
	text, _ := m["lastTransitionTime"].(string)
	return text
}

// An older condition's time moves with its message, too; a standard one's only
// with its status.
func TestTransitionTimes(t *testing.T) {
	blocked := condition{kind: "RemediationAllowed", status: "False", severity: "Warning", reason: "TooManyUnhealthy", message: "2 of 3"}
	worse, open := blocked, condition{kind: "RemediationAllowed", status: "True", reason: "RemediationAllowed"}
	worse.message = "3 of 3"
	for which, moves := range map[conditionStyle]bool{severe: true, standard: false} {
		first := conditionList{}.with(which, blocked, noon)
		again := first.with(which, blocked, later)
		assert.Equal(t, first, again, "nothing is written when nothing changed")
		changed := first.with(which, worse, later)
		assert.NotEqual(t, first, changed)
		assert.Equal(t, moves, transition(changed, "RemediationAllowed") == "2026-01-01T13:00:00Z")
		assert.Equal(t, "2026-01-01T13:00:00Z", transition(first.with(which, open, later), "RemediationAllowed"))
	}
}

func TestConditionsOfOthersStay(t *testing.T) {
	l := conditionList{map[string]any{"type": "Zeal", "status": "True"}, "nonsense", map[string]any{"type": "Ardour", "status": "True"}}
	got := l.with(severe, condition{kind: "Middle", status: "True"}, noon)
	assert.Len(t, got, 4)
	assert.Len(t, l, 3, "the list that was read is not written")
	for _, kind := range []string{"Zeal", "Ardour", "Middle"} {
		assert.Equal(t, "True", got.status(kind))
	}
}

func TestStatusOfCountsOnly(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{"apiVersion": policy.OpenShiftMachineAPI, "status": map[string]any{
		"expectedMachines": int64(3), "currentHealthy": int64(3), "remediationsAllowed": int64(1),
		"conditions": []any{map[string]any{"type": "RemediationAllowed", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}},
	}}}
	r := policy.CheckReport{APIVersion: policy.OpenShiftMachineAPI, Expected: 3, Healthy: 3, RemediationsAllowed: 1, Allowed: true}
	assert.Empty(t, changedStatus(live, &r, later))
	r.Healthy, r.RemediationsAllowed = 2, 0
	assert.Equal(t, map[string]any{"currentHealthy": int64(2), "remediationsAllowed": int64(0)}, changedStatus(live, &r, later))
}

// OwnerRemediated False in either list makes a verdict of ours a deletion.
func TestVerdictThatWouldDeleteTheMachine(t *testing.T) {
	marked := []any{map[string]any{"type": "OwnerRemediated", "status": "False"}}
	waiting := []any{map[string]any{"type": "OwnerRemediated", "status": "True"}}
	for name, c := range map[string]struct {
		version string
		status  map[string]any
		deletes bool
	}{
		"standard":                {"v1beta2", map[string]any{"conditions": marked}, true},
		"old, of v1beta2":         {"v1beta2", map[string]any{"deprecated": map[string]any{"v1beta1": map[string]any{"conditions": marked}}}, true},
		"old, of v1beta1":         {"v1beta1", map[string]any{"conditions": marked}, true},
		"only old is left behind": {"v1beta1", map[string]any{"conditions": marked, "v1beta2": map[string]any{"conditions": waiting}}, true},
		"standard of v1beta1":     {"v1beta1", map[string]any{"v1beta2": map[string]any{"conditions": marked}}, true},
		"owner at work":           {"v1beta2", map[string]any{"conditions": waiting}, false},
		"none":                    {"v1beta2", map[string]any{}, false},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/" + c.version, "kind": "Machine", "status": c.status}}
		assert.Equal(t, c.deletes, wouldDelete(u), name)
	}
}
