package policy

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

// The labels of a Node are to everybody what a map of them would be, whatever they share.
func TestLawLabelsAreAMap(t *testing.T) {
	shared := map[Label]*Label{}
	share := func(l Label) *Label {
		if shared[l] == nil {
			shared[l] = &l
		}
		return shared[l]
	}
	law.Check(t, func(t *rapid.T) {
		draw := func(name string) labels.Set {
			return rapid.MapOf(rapid.StringMatching("[a-c]{0,2}"), rapid.SampledFrom([]string{"", "x", "y"})).Draw(t, name)
		}
		set, other := draw("labels"), draw("other labels")
		l := SharedLabels(set, share)
		assert.Equal(t, map[string]string(set), l.Map())
		for _, key := range []string{"", "a", "b", "aa", "ab", "bc", "c", "cc"} {
			value, has := set[key]
			got, found := l.Lookup(key)
			assert.Equal(t, []any{value, has, value, has}, []any{got, found, l.Get(key), l.Has(key)}, "the label %q", key)
			for _, text := range []string{key, "!" + key, key + "=x", key + "!=x", key + " in (x,y)"} {
				if selector, err := labels.Parse(text); err == nil {
					assert.Equal(t, selector.Matches(set), selector.Matches(l), text)
				}
			}
		}
		selector := labels.SelectorFromSet(other)
		assert.Equal(t, selector.Matches(set), selector.Matches(l))
		assert.Equal(t, maps.Equal(set, other), l.Equal(LabelsOf(other)))
		assert.True(t, l.Equal(LabelsOf(set)))
	})
}
