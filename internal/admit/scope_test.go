package admit

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/state"
)

// Whatever lets the daemon act on something that it did not act on before begins a quiet
// period. // I18
func TestWhatEnlargesTheScope(t *testing.T) {
	in := func(mode string, requests ...string) state.Scope { return state.Scope{Mode: mode, Requests: requests} }
	for name, c := range map[string]struct {
		before, now state.Scope
		larger      bool
	}{
		"nothing on record":                       {in(""), in(guard.ModeObserve), true},
		"the same":                                {in(guard.ModeRespond, "metal3Remediations"), in(guard.ModeRespond, "metal3Remediations"), false},
		"to observe":                              {in(guard.ModeEvaluate), in(guard.ModeObserve), false},
		"from observe":                            {in(guard.ModeObserve), in(guard.ModeRespond), true},
		"evaluate also acts on checks":            {in(guard.ModeRespond), in(guard.ModeEvaluate), true},
		"respond also acts on annotations":        {in(guard.ModeEvaluate), in(guard.ModeRespond), true},
		"another kind of requests":                {in(guard.ModeRespond), in(guard.ModeRespond, "metal3Remediations"), true},
		"another namespace of requests":           {in(guard.ModeRespond, "requestNamespaces a"), in(guard.ModeRespond, "requestNamespaces a", "requestNamespaces b"), true},
		"a kind of requests less than there were": {in(guard.ModeRespond, "metal3Remediations"), in(guard.ModeRespond), false},
	} {
		assert.Equal(t, c.larger, whyEnlarged(c.before, c.now) != "", name)
	}
}
