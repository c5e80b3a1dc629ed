package admit

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
)

// TestFewestFirst: who has many targets in one namespace comes after the others, whatever the names.
func TestFewestFirst(t *testing.T) {
	check := func(source, namespace, name string, targets int) policy.CheckReport {
		return policy.CheckReport{Source: source, Namespace: namespace, Name: name, Targets: make([]policy.TargetReport, targets)}
	}
	list := []policy.CheckReport{
		check("cluster", "aaa", "a", 1), check("cluster", "aaa", "b", 9), check("cluster", "racks", "d", 2), check("cluster", "racks", "e", 3),
		check("", "", "nhc", 20), check("policies.d/a.yaml:1", "aaa", "file", 20),
	}
	fewestFirst(list)
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{"nhc", "file", "d", "e", "a", "b"}, names)
}
