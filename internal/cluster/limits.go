package cluster

import (
	"sync/atomic"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/remediate"
)

// Limits are the guards, and the limits of new runs, of all clusters. A reload replaces all of
// them at once. A run keeps the limits of its start, which are in its record. nil Limits are zero.
type Limits struct{ now atomic.Pointer[limitValues] }

type limitValues struct {
	guards guard.Limits
	run    remediate.Limits
}

// NewLimits returns these limits.
func NewLimits(g guard.Limits, r remediate.Limits) *Limits {
	l := &Limits{}
	l.Replace(g, r)
	return l
}

// Replace makes these the limits from the next evaluation on.
func (l *Limits) Replace(g guard.Limits, r remediate.Limits) { l.now.Store(&limitValues{g, r}) }

// Guards are what must hold before a run starts.
func (l *Limits) Guards() guard.Limits { return l.values().guards }

// Run are the limits of a run that starts now.
func (l *Limits) Run() remediate.Limits { return l.values().run }

func (l *Limits) values() limitValues {
	if l == nil {
		return limitValues{}
	}
	return *l.now.Load()
}
