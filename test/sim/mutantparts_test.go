package sim

import (
	"context"
	"errors"
	"sync"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/run"
)

// staleness serves for ever the first sick Node that was seen, with the UID of now,
// and its Lease.
func staleness() func(f *run.Fresh, r remediate.Run) {
	var mu sync.Mutex
	sick := map[string]run.Fresh{}
	return func(f *run.Fresh, r remediate.Run) {
		mu.Lock()
		defer mu.Unlock()
		if f.Node == nil || r.Step != remediate.PowerOff && r.Step != "" {
			return
		}
		old, known := sick[f.Node.Name]
		switch {
		case !f.Node.Ready():
			sick[f.Node.Name] = *f
		case known:
			n := *old.Node
			n.UID = f.Node.UID
			f.Node, f.Observation.Node.Ready, f.Lease, f.Observation.Lease = &n, remediate.No, old.Lease, old.Observation.Lease
		}
	}
}

// anyBoot makes every Node one that has just booted, and its Lease one that stands
// still.
func anyBoot(f *run.Fresh, r remediate.Run) {
	f.Observation.Lease.ResourceVersion = "1"
	if r.Step == remediate.AwaitNode || r.Step == remediate.RestoreNode {
		f.Observation.Node.BootID = "another"
	}
}

// deafWatch tells of what is there first, and of nothing that happens then.
type deafWatch struct {
	admit.Watch
	told bool
}

func (d *deafWatch) Changes() []policy.Change {
	list := d.Watch.Changes()
	if d.told {
		return nil
	}
	d.told = len(list) > 0
	return list
}

// unskewed is a view that does not compare the clocks.
type unskewed struct{ admit.Watch }

func (u unskewed) View() admit.View {
	v := u.Watch.View()
	v.Skew = 0
	return v
}

// remembersRequests serves each request for ever as it was seen first.
func remembersRequests() Defect {
	var mu sync.Mutex
	seen := map[string]*policy.Request{}
	return looks(func(f *run.Fresh, r remediate.Run) {
		mu.Lock()
		defer mu.Unlock()
		if r.Request == nil {
			return
		}
		if f.Request != nil && !isOver(f.Request) {
			seen[r.Request.UID] = f.Request
		} else if q := seen[r.Request.UID]; q != nil {
			f.Request, f.Observation.Contested = q, remediate.No
		}
	})
}

// hasty lets every request go as soon as its run is told.
type hasty struct{ engine.Requests }

func (h hasty) Report(ctx context.Context, ref remediate.Request, told request.Status) error {
	return errors.Join(h.Requests.Report(ctx, ref, told), h.RemoveFinalizer(ctx, ref, ""))
}

// forgetful is a Kube that does not know which keys a run has read back.
type forgetful struct{ engine.Kube }

func (f forgetful) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	r.Restored = nil
	return f.Kube.Look(ctx, r, backups)
}

func (f forgetful) Restore(ctx context.Context, r remediate.Run, backups [][]byte) ([]string, error) {
	r.Restored = nil
	return f.Kube.Restore(ctx, r, backups)
}
