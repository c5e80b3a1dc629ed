package main

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
)

// What the engine refuses has its place among the API's errors, from which fencectl
// takes its exit status.
func TestRefusalsHaveTheirPlaceInTheAPI(t *testing.T) {
	for reason, want := range map[policy.Reason]api.Error{
		engine.NoSuchNode:               {Status: http.StatusNotFound, Code: "NoSuchNode"},
		engine.NoSuchCluster:            {Status: http.StatusNotFound, Code: "NoSuchCluster"},
		engine.NoSuchRun:                {Status: http.StatusNotFound, Code: "NoSuchRun"},
		engine.ClusterRequired:          {Status: http.StatusBadRequest, Code: "ClusterRequired"},
		engine.NoHold:                   {Status: http.StatusConflict, Code: "NoHold"},
		engine.NoRun:                    {Status: http.StatusConflict, Code: "NoRun"},
		policy.UnderRemediation:         {Status: http.StatusConflict, Code: "UnderRemediation"},
		policy.NotFrozen:                {Status: http.StatusConflict, Code: "NotFrozen"},
		engine.OrderRefused:             {Status: http.StatusUnprocessableEntity, Code: "OrderRefused"},
		engine.ConfirmedOffContradicted: {Status: http.StatusUnprocessableEntity, Code: "ConfirmedOffContradicted"},
		policy.Paused:                   {Status: http.StatusUnprocessableEntity, Code: "Paused"},
		policy.NotOwner:                 {Status: http.StatusUnprocessableEntity, Code: "NotOwner"},
	} {
		got, ok := errors.AsType[*api.Error](apiError(&engine.Refusal{Reason: reason, Message: "why"}))
		require.True(t, ok, reason)
		assert.NotEmpty(t, got.Hint, reason)
		want.Message, want.Hint = "why", got.Hint
		assert.Equal(t, want, *got, reason)
	}
	plain := errors.New("disk full")
	assert.Equal(t, plain, apiError(plain))
}
