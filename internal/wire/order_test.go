package wire

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Pods that are not known are absent, none are counted, and of many the first are named.
func TestTargetTellsItsPods(t *testing.T) {
	var names []string
	for n := range maxPods + 5 {
		names = append(names, fmt.Sprintf("ns/p-%02d", n))
	}
	none, many := PodsOf(nil, false), PodsOf(names, true)
	some := PodsOf(names[:2], false)
	for _, tc := range []struct {
		target OrderTarget
		want   string
	}{
		{OrderTarget{Cluster: "c", Node: "n", PodsProblem: "forbidden", BMC: "ipmi://bmc"},
			`{"cluster":"c","node":"n","ready":"","podsProblem":"forbidden","bmc":"ipmi://bmc"}`},
		{OrderTarget{Cluster: "c", Node: "n", Ready: "Unknown", ReadySince: at, Pods: &none},
			`{"cluster":"c","node":"n","ready":"Unknown","readySince":"2026-01-01T00:00:00Z","podCount":0}`},
		{OrderTarget{Cluster: "c", Node: "n", Machine: "ns/m", Pods: &some, Identity: "match", UUID: "4c4c"},
			`{"cluster":"c","node":"n","machine":"ns/m","ready":"","pods":["ns/p-00","ns/p-01"],"podCount":2,"identity":"match","uuid":"4c4c"}`},
	} {
		text, err := json.Marshal(tc.target)
		require.NoError(t, err)
		assert.Equal(t, tc.want, string(text))
		var read OrderTarget
		require.NoError(t, json.Unmarshal(text, &read))
		assert.Equal(t, tc.target, read)
	}
	assert.Equal(t, Pods{Names: names[:maxPods], Count: maxPods + 5, More: true}, many)
}

// What the daemon knows of who gives an order, and of what it is about, never comes from the body.
func TestBodySaysNothingOfTheSender(t *testing.T) {
	o := Order{
		Verb: Fence, Cluster: "c", Node: "n", Machine: "ns/m", Run: "r-1", Actor: "ada", Role: Admin,
		Reason: "disk", For: Span(90 * time.Minute), DryRun: true,
	}
	text, err := json.Marshal(o)
	require.NoError(t, err)
	assert.Equal(t, `{"reason":"disk","dryRun":true,"for":"1h30m0s"}`, string(text))
	var read Order
	require.NoError(t, json.Unmarshal([]byte(`{"reason":"disk","verb":"fence","Actor":"eve","Role":3,"role":3,"node":"n"}`), &read))
	assert.Equal(t, Order{Reason: "disk"}, read)
}
