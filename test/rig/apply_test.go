package rig

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

var (
	secrets  = schema.GroupResource{Resource: "secrets"}
	timedOut = apierrors.NewTimeoutError("request did not complete", 0)
	exists   = apierrors.NewAlreadyExists(secrets, "a")
)

func TestBusyServerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, row := range map[string]struct {
			answers  []error // to create
			requests int
			want     error
			read     bool // by get
		}{
			"at once":                           {answers: []error{nil}, requests: 1},
			"when it has time":                  {answers: []error{timedOut, timedOut, nil}, requests: 3},
			"what the first request has made":   {answers: []error{timedOut, exists}, requests: 2, read: true},
			"what was there before":             {answers: []error{exists}, requests: 1, want: exists},
			"a refusal is not waited for":       {answers: []error{apierrors.NewForbidden(secrets, "a", nil)}, requests: 1, want: apierrors.NewForbidden(secrets, "a", nil)},
			"a refusal after a time-out, too":   {answers: []error{timedOut, apierrors.NewBadRequest("no")}, requests: 2, want: apierrors.NewBadRequest("no")},
			"what hangs is not waited for long": {want: timedOut, requests: 300},
		} {
			requests := 0
			create := func() (string, error) {
				if requests++; requests > len(row.answers) {
					return "", timedOut
				}
				return "created", row.answers[requests-1]
			}
			got, err := createWhileBusy(t.Context(), create, func() (string, error) { return "read", nil })
			assert.InDelta(t, row.requests, requests, float64(row.requests/100), name) // the last second may be either
			assert.Equal(t, row.want, err, name)
			assert.Equal(t, row.read, got == "read", name)
		}
	})
}

func TestBusyServerIsNotWaitedForAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	requests := 0
	err := WhileBusy(ctx, func() error { requests++; return timedOut })
	require.ErrorIs(t, err, timedOut)
	assert.Equal(t, 1, requests)
}
