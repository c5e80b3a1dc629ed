package run

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/remediate"
)

// Machines that are still to be deleted are looked at before those that are deleted.
func TestLookQueue(t *testing.T) {
	r := New(Options{})
	for step, want := range map[remediate.Step]*queue{remediate.PowerOff: r.looks, remediate.Reprovision: r.deleted} {
		w := &worker{r: r, run: remediate.Run{Step: step, Intent: remediate.Intent{Action: remediate.DeleteTargetMachine}}}
		assert.Same(t, want, w.lookQueue(), step)
		w.run.Intent.Action = remediate.Nothing
		assert.Same(t, r.looks, w.lookQueue(), step)
	}
}

// Only a run that does no more than replace a Machine begins with the look that admitted it, only
// once, and only while that look is young and complete. // I4, I12
func TestAdmittedLookIsTaken(t *testing.T) {
	young := time.Now().Add(time.Hour) // however busy the machine is
	fits := remediate.Run{Strategy: remediate.DeleteMachine}
	for name, c := range map[string]struct {
		change func(*remediate.Run)
		look   *Admitted
		want   bool
	}{
		"a young one":     {look: &Admitted{At: young}, want: true},
		"none":            {},
		"an old one":      {look: &Admitted{At: time.Now().Add(-admittedFor)}},
		"from no probe":   {look: &Admitted{}},
		"an error":        {look: &Admitted{At: young, Fresh: Fresh{Err: errors.New("no answer")}}},
		"a power cycle":   {look: &Admitted{At: young}, change: func(r *remediate.Run) { r.Strategy = remediate.PowerCycle }},
		"a control plane": {look: &Admitted{At: young}, change: func(r *remediate.Run) { r.ControlPlane = true }},
		"an order":        {look: &Admitted{At: young}, change: func(r *remediate.Run) { r.Manual = &remediate.Order{} }},
	} {
		w := &worker{run: fits, admitted: c.look}
		if c.change != nil {
			c.change(&w.run)
		}
		assert.Equal(t, c.want, w.takeAdmitted() != nil, name)
		assert.Nil(t, w.takeAdmitted(), name)
	}
}
