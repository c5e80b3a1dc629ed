package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/suspend"
)

// viewed is a watch whose view a test sets.
type viewed struct{ now View }

func (*viewed) Changes() []policy.Change { return nil }
func (*viewed) Changed() <-chan struct{} { return nil }
func (v *viewed) View() View             { return v.now }

// TestProblemOfAViewHasItsCode: what is wrong with a view is a sentence and a code; a wrong clock says who is behind, and by how much.
func TestProblemOfAViewHasItsCode(t *testing.T) {
	watch := &viewed{}
	f := NewFreshness(FreshnessOptions{
		Watch: watch, Limits: cluster.NewLimits(guard.Limits{ViewMaxAge: time.Minute, ClockSkewMax: 5 * time.Second}, remediate.Limits{}),
		Awake: func() suspend.Awake { return suspend.StayAwake(func() time.Duration { return 0 }) },
	})
	for want, c := range map[string]struct {
		view View
		code reason.Code
	}{
		"":                                    {View{Synced: true, Skew: 5 * time.Second, SkewKnown: true}, ""},
		"not synced yet; watch Node: refused": {View{Problem: "watch Node: refused"}, reason.NotSynced},
		"the view is 1m30s old":               {View{Synced: true, Age: 90 * time.Second}, reason.ViewStale},
		"watch Node: refused":                 {View{Synced: true, Problem: "watch Node: refused"}, ""},
		"the clock of this host is 30s behind that of the API server":               {View{Synced: true, Skew: 30 * time.Second, SkewKnown: true}, reason.ClockSkew},
		"the clock of this host is 1m0s ahead of that of the management API server": {View{Synced: true, Skew: -time.Minute, SkewKnown: true, SkewOf: "the management API server"}, reason.ClockSkew},
	} {
		watch.now = c.view
		_, problem, _ := f.Check()
		assert.Equal(t, want, problem)
		code, kept := f.Problem()
		assert.Equal(t, want, kept)
		assert.Equal(t, c.code, code, want)
	}
}
