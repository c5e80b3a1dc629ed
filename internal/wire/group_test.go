package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The same labels are the same group, however they are given.
func TestLabelsOfAGroup(t *testing.T) {
	for want, groups := range map[string][]Group{
		"topology.kubernetes.io/zone=a": {{Zone: "a"}, {Selector: "topology.kubernetes.io/zone=a"}},
		"rack=r7":                       {{Rack: "r7"}, {Selector: "rack=r7"}},
		"a=1,b/c=2":                     {{Selector: "b/c=2,a=1"}, {Selector: "a=1,b/c=2"}},
	} {
		for _, g := range groups {
			labels, err := g.Labels("topology.kubernetes.io/zone", "rack")
			require.NoError(t, err, g)
			assert.Equal(t, want, SelectorOf(labels), g)
		}
	}
}

func TestWrongLabelsOfAGroup(t *testing.T) {
	var many []string
	for i := range maxLabels + 1 {
		many = append(many, fmt.Sprintf("k%d=v", i))
	}
	for text, g := range map[string]Group{
		"0 are given":                {},
		"3 are given":                {Selector: "a=b", Zone: "c", Rack: "d"},
		`"a in (b)=" is not`:         {Selector: "a in (b)"},
		`"a=" is not KEY=VALUE`:      {Selector: "a="},
		`"=" is not KEY=VALUE`:       {Selector: "a=b,"},
		`"a!=b" is not KEY=VALUE`:    {Selector: "a!=b"},
		`" c=d" is not KEY=VALUE`:    {Selector: "a=b, c=d"},
		`"zone=a,b=c" is not`:        {Zone: "a,b=c"}, // it is one value
		`"zone=a=b" is not`:          {Zone: "a=b"},
		"the label a is given twice": {Selector: "a=b,a=b"},
		"at most 8":                  {Selector: strings.Join(many, ",")},
	} {
		_, err := g.Labels("zone", "rack")
		assert.ErrorContains(t, err, text, g)
	}
	_, err := Group{Rack: "r7"}.Labels("zone", "")
	assert.Error(t, err, "no label is one of racks")
}
