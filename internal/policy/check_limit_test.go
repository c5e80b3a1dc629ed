package policy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

// named is a check of a namespace.
func named(namespace, name string) *Check {
	return &Check{Kind: MachineHealthCheckKind, APIVersion: OpenShiftMachineAPI, Namespace: namespace, Name: name, Selector: labels.Everything(), Strategy: PowerCycleHosts,
		Conditions: nodePolicy().Conditions}
}

// seatedIn lists the checks of a namespace that are evaluated, as the ledger and Decide say.
func seatedIn(t *testing.T, l *Ledger, namespace string) (list []string) {
	t.Helper()
	r := l.Report(ledgerEpoch)
	require.Equal(t, Decide(l.Snapshot(), ledgerEpoch), r)
	require.Len(t, l.Counters(), len(r.Checks), "what is over the limit has no metrics")
	for _, c := range r.Checks {
		if c.Namespace == namespace {
			list = append(list, c.Name)
		}
	}
	return list
}

// Of the checks of one namespace the first by name are evaluated. The others are in no table, and take nothing from the
// checks of others. A seat that becomes free goes to the next.
func TestChecksBeyondTheLimitAreNotEvaluated(t *testing.T) { // I18
	m, n, _ := prod()
	file := named("tenant", "from-a-file")
	file.Source = "policies.d/all.yaml:1"
	l := NewLedger(Rules{MaxChecks: 2})
	l.Apply(ledgerEpoch, put(n), put(m), put(named("prod", "c")), put(nodePolicy()), put(file))
	before := acts(t, l)
	for _, name := range []string{"c", "b", "d", "a"} {
		l.Apply(ledgerEpoch, put(named("tenant", name)))
	}
	assert.Equal(t, []string{"a", "b", "from-a-file"}, seatedIn(t, l, "tenant"))
	assert.Equal(t, []string{"c"}, seatedIn(t, l, "prod"))
	assert.Equal(t, before, acts(t, l))
	require.Len(t, l.Crowds(), 1)
	assert.Equal(t, "namespace tenant", l.Crowds()[0].Namespace)
	assert.Equal(t, []ObjectError{{"namespace tenant", "CheckLimit: it has more than 2 checks, and fenced evaluates the first 2 by name: " +
		"the others select nothing and limit nothing; delete those that are not needed"}}, l.Report(ledgerEpoch).Errors)

	changed := named("tenant", "d")
	changed.Strategy = CountOnly
	l.Apply(ledgerEpoch, put(changed))
	for _, step := range []struct {
		gone string
		want []string
	}{{"a", []string{"b", "c", "from-a-file"}}, {"c", []string{"b", "d", "from-a-file"}}, {"b", []string{"d", "from-a-file"}}, {"x", []string{"d", "from-a-file"}}} {
		l.Apply(ledgerEpoch, Change{ID: put(named("tenant", step.gone)).ID})
		assert.Equal(t, step.want, seatedIn(t, l, "tenant"), "without %s", step.gone)
	}
	assert.Equal(t, CountOnly, l.Check(changed.ID()).Strategy, "what changed while it had no seat")
	assert.Empty(t, l.Crowds())
	assert.Empty(t, l.Report(ledgerEpoch).Errors)
}

// What the documents say. The administrator's are not limited.
func TestThousandChecksOfANamespace(t *testing.T) { // I18
	l := NewLedger(Rules{})
	for i := range 1002 {
		l.Apply(ledgerEpoch, put(named("tenant", fmt.Sprintf("c-%04d", i))))
		p := nodePolicy()
		p.Name = fmt.Sprintf("p-%04d", i)
		l.Apply(ledgerEpoch, put(p))
	}
	assert.Len(t, seatedIn(t, l, "tenant"), 1000)
	assert.Len(t, seatedIn(t, l, ""), 1002)
}
