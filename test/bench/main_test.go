package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/dice"
)

// TestMain lets this binary be the peer that Measure starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == rejudgeWord {
		if err := run(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	metalTimeout, cloudTimeout, manyTimeout, patience = 40*time.Second, 40500*time.Millisecond, time.Minute, 5*time.Minute
	os.Exit(m.Run())
}

// A small fleet shows that the measurement measures, which make bench shows on a large one; whether a figure
// is good is for `make bench` on an idle machine. Measure itself fails when a Node or a
// Machine that is no target is touched, or the BMC of a healthy host is asked.
func TestMeasure(t *testing.T) {
	dice.OnlyInSoak(t)
	r, err := Measure(t.Context(), Options{
		Nodes: 200, Rate: 20, Window: 3 * time.Second, Samples: 3, Together: 10, Settle: time.Second, Progress: t.Output(),
	})
	require.NoError(t, err)
	for what, samples := range map[string][]time.Duration{"metal": r.Metal, "cloud": r.Cloud} {
		require.Len(t, samples, 3, what)
		for _, d := range samples {
			assert.Positive(t, d, "%s: nothing is done before the timeout is over", what)
			assert.Less(t, d, patience, what)
		}
	}
	for what, samples := range map[string][]time.Duration{"fenced": r.Many.Fenced, "baseline": r.Many.Baseline} {
		require.Len(t, samples, 10, what)
		for _, d := range samples {
			assert.Positive(t, d, "%s: nothing is deleted before the timeout is over", what)
		}
	}
	for i, used := range r.Many.UntilLast {
		assert.Less(t, used, measureTime, sharers[i])
	}
	assert.Positive(t, r.Start)
	assert.Positive(t, r.Judgements)
	for what, u := range map[string]Usage{"fenced": r.Fenced, "peer": r.Peer} {
		assert.Positive(t, u.CPU, what)
		assert.Less(t, u.CPU, 64.0, what)
		assert.Greater(t, u.RSS, int64(4<<20), what)
		assert.GreaterOrEqual(t, u.Peak, u.RSS, what)
		assert.Positive(t, u.Own, what)
		assert.Less(t, u.Own, u.RSS, what)
		assert.Positive(t, u.Updates, what)
	}
	var out bytes.Buffer
	require.NoError(t, r.Print(&out))
	assert.Contains(t, out.String(), "first byte at the BMC")
	assert.Contains(t, out.String(), "re-judge everything per event")
}

func TestMeasureRefusesTooSmall(t *testing.T) {
	for name, o := range map[string]Options{
		"no sample":     {Nodes: 100, Together: 1, Rate: 1, Window: time.Second},
		"no update":     {Nodes: 100, Samples: 1, Together: 1, Window: time.Second},
		"no window":     {Nodes: 100, Samples: 1, Together: 1, Rate: 1},
		"none together": {Nodes: 100, Samples: 1, Rate: 1, Window: time.Second},
		"only targets":  {Nodes: 2, Samples: 1, Together: 1, Rate: 1, Window: time.Second},
	} {
		_, err := Measure(t.Context(), o)
		assert.ErrorContains(t, err, "are needed", name)
	}
}

func TestRunRefusesArguments(t *testing.T) {
	assert.ErrorContains(t, run(t.Context(), []string{"-nodes", "10", "what"}), `"what"`)
	assert.ErrorContains(t, run(t.Context(), []string{rejudgeWord}), "kubeconfig")
}
