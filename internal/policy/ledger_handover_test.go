package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/policy"
)

// TestHandedOver: the ledger lists the targets that a check hands over, and those that still have
// requests: of a Node that is well, of one that is gone, of a Machine. It lists nothing of other
// checks, and a check that nobody serves is Disabled.
func TestHandedOver(t *testing.T) {
	since := epoch.Add(-time.Hour)
	node := func(name, ready string) *policy.Node {
		return &policy.Node{Name: name, UID: name, Conditions: []policy.Condition{{Type: "Ready", Status: ready, LastTransition: since}}}
	}
	check := &policy.Check{
		Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p", Selector: labels.Everything(), SelectsNodes: true, Source: "a.yaml:1",
		Strategy: policy.CreateRequests, Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
		Template: &policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "t"},
	}
	request := func(node, mark string) *policy.Request {
		return &policy.Request{APIVersion: "example.com/v1", Kind: "Reboot", Namespace: "ns", Name: node, NodeName: node, TemplateName: "t", Check: mark, UID: "of " + node}
	}
	l := policy.NewLedger(policy.Rules{})
	put := func(kind, name string, value any) {
		l.Apply(epoch, policy.Change{ID: policy.ObjectID{Kind: kind, Name: name}, Value: value})
	}
	l.Apply(epoch, policy.Change{ID: policy.ObjectID{APIVersion: check.APIVersion, Kind: check.Kind, Name: check.Name}, Value: check})
	for name, ready := range map[string]string{"sick": "Unknown", "well": "True", "plain": "True", "other": "Unknown"} {
		put("Node", name, node(name, ready))
	}
	for node, mark := range map[string]string{"well": check.Mark(), "gone": check.Mark(), "other": "FencePolicy.fenced.io q"} {
		put("Reboot", node, request(node, mark))
	}
	found := map[string]*policy.HandedOver{}
	for _, h := range l.HandedOver(epoch) {
		found[h.Target.Subject()] = &h
	}
	require.Len(t, found, 4)
	assert.True(t, found["sick"].Target.Acts())
	assert.Empty(t, found["sick"].Requests)
	assert.False(t, found["other"].Target.Acts(), "somebody else was asked")
	assert.Empty(t, found["other"].Requests)
	assert.True(t, found["well"].Recovered && found["well"].NodeReady)
	assert.Equal(t, "of well", found["well"].Requests[0].UID)
	assert.True(t, found["gone"].NodeGone)
	assert.Equal(t, policy.StateActive, found["gone"].State)

	l.SetDisabled(epoch, map[string]string{check.Mark(): "nobody carries it out"})
	r, _ := l.CheckReport(check.ID(), epoch)
	assert.Equal(t, []string{"Disabled", "nobody carries it out"}, []string{string(r.State), r.Message})
	for _, h := range l.HandedOver(epoch) {
		assert.Equal(t, policy.StateDisabled, h.State)
		assert.False(t, h.Recovered)
	}
	l.SetDisabled(epoch, nil)
	r, _ = l.CheckReport(check.ID(), epoch)
	assert.Equal(t, policy.StateActive, r.State)
}
