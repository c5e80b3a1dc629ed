package policy

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The author of a check names the kind of its requests. Whatever he writes, no
// request takes the place of anything else, nor takes it away with it.
func TestRequestsReplaceNothing(t *testing.T) {
	m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n", Paused: true}
	for _, id := range []ObjectID{put(m).ID, put(silentNode("n")).ID, {APIVersion: "x.example/v1", Kind: "Node", Namespace: "ns", Name: "n"}, {APIVersion: "x.example/v1", Kind: "Machine", Namespace: "ns", Name: "m"}, {APIVersion: "x.example/v1", Kind: "Cluster", Namespace: "ns", Name: "k"}} {
		l := NewLedger(Rules{Namespaces: []string{"ns"}})
		cluster := Change{ID: ObjectID{APIVersion: ClusterAPIV1Beta2, Kind: "Cluster", Namespace: "ns", Name: "k"}, Value: &Cluster{Namespace: "ns", Name: "k", Paused: true}}
		l.Apply(ledgerEpoch, put(nodePolicy()), put(silentNode("n")), put(m), cluster)
		all := func(what string) {
			require.Empty(t, acts(t, l), "%s %v", what, id)
			require.NotNil(t, l.Node("n"), "%s %v", what, id)
			require.NotNil(t, l.MachineIn(OpenShiftMachineAPI, "ns", "m"), "%s %v", what, id)
			require.NotNil(t, l.w.clusters["ns/k"], "%s %v", what, id)
		}
		l.Apply(ledgerEpoch, Change{ID: id, Value: &Request{APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}})
		require.Len(t, l.Snapshot().Requests, 1)
		all("after the request came")
		l.Apply(ledgerEpoch, Change{ID: id})
		require.Empty(t, l.Snapshot().Requests)
		all("after it went")
	}
}

// An object of another group that cannot be read is none of ours, whatever its
// kind is called; one without an apiVersion may be.
func TestUnreadObjectsOfOtherGroups(t *testing.T) {
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	c := nodePolicy()
	c.SelectsNodes = false
	l.Apply(ledgerEpoch, put(c), put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n"}))
	require.Equal(t, []string{"n ns/m"}, acts(t, l), "its Node is gone")
	for _, id := range []ObjectID{{APIVersion: "x.example/v1", Kind: "Node", Namespace: "ns", Name: ""}, {APIVersion: "x.example/v1", Kind: "Node", Namespace: "ns", Name: "n"}, {APIVersion: "x.example/v1", Kind: "Node", Namespace: "", Name: "n"}} {
		l.Apply(ledgerEpoch, Change{ID: id, Err: errors.New("x")})
		assert.Equal(t, []string{"n ns/m"}, acts(t, l), id)
	}
	l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: "", Kind: "Node", Name: "n"}, Err: errors.New("x")})
	assert.Empty(t, acts(t, l))
}

// What cannot be read any more is not used any more, even beside a request of the
// same name.
func TestUnreadObjectBesideItsRequest(t *testing.T) {
	m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n"}
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(m), Change{ID: put(m).ID, Value: &Request{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: "m"}})
	l.Apply(ledgerEpoch, Change{ID: put(m).ID, Err: errors.New("x")})
	assert.Nil(t, l.MachineIn(OpenShiftMachineAPI, "ns", "m"))
	assert.Empty(t, l.Snapshot().Requests)
	assert.Equal(t, []ObjectKey{{"Machine", "ns", "m"}}, l.Snapshot().Undecoded)
}

// The namespace of a template is one of requests for every target as long as a policy names it.
func TestRemovedFileTakesTheNamespaceOfItsTemplateAway(t *testing.T) {
	c := nodePolicy()
	c.Source, c.Strategy, c.Template = "p.yaml:1", CreateRequests, &worldTemplate
	l := NewLedger(Rules{})
	l.SetFiles(ledgerEpoch, []Check{*c}, nil)
	require.Equal(t, []string{"a"}, l.w.requests.spaces)
	l.SetFiles(ledgerEpoch, nil, nil)
	assert.Empty(t, l.w.requests.spaces)
}
