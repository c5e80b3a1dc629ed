package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// noHosts is an inventory that cannot be read.
type noHosts struct{}

func (noHosts) Protected(string, string) bool { return false }

func (noHosts) List(string) []string { return nil }

func (noHosts) Find(context.Context, string, string) (bmc.Host, bool, error) {
	return bmc.Host{}, false, context.DeadlineExceeded
}

// emptyStore has no records.
type emptyStore struct{ state.Store }

func (emptyStore) List(context.Context, state.Kind) ([]state.Record, error) { return nil, nil }

// withoutHosts gives a cluster hosts of which nothing is known.
func withoutHosts(t *testing.T, c *cluster) *cluster {
	t.Helper()
	h, err := hosts.New(t.Context(), hosts.Options{Inventory: noHosts{}}, emptyStore{})
	require.NoError(t, err)
	c.hosts = h.Attach(t.Context(), hosts.ClusterOptions{View: viewed{c}})
	return c
}

// A look that ends after nobody waited for it any more says nothing to those who
// wait anew.
func TestLateEvidenceIsNobodys(t *testing.T) {
	old, fresh := &evidence{running: true}, &evidence{running: true, off: true}
	c := withoutHosts(t, &cluster{e: &Engine{}, ledger: policy.NewLedger(policy.Rules{}),
		evidence: map[string]*evidence{"n-1": fresh}, poke: make(chan struct{}, 1), lead: lead.New(lead.Options{})})
	draft := remediate.Run{Target: remediate.Target{Node: "n-1"}}
	c.readEvidence(t.Context(), draft, old)
	assert.True(t, fresh.running && fresh.off)
	c.readEvidence(t.Context(), draft, fresh)
	assert.False(t, fresh.running || fresh.off)
}
