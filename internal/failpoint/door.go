//go:build failpoint

package failpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// failingPower has a point before and after every command.
type failingPower struct {
	bmc.Power
	book   *logbook
	device string
}

func (p failingPower) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	node, name := p.book.commanding(p.device)
	reach(node, "before", "command", c.String(), name)
	receipt, err := p.Power.Send(ctx, c)
	reach(node, "after", "command", c.String(), name)
	return receipt, err
}

// commanding returns the Node and the step of the open run on a device, and which
// of the host's devices it is: deviceN of Devices.
func (b *logbook) commanding(device string) (node, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.runs {
		at := slices.Index(strings.Split(r.Target.Devices, "\n"), device)
		if r.Open() && at >= 0 {
			return r.Target.Node, fmt.Sprintf("%s-device%d", r.Step, at)
		}
	}
	return "", unasked
}

// unasked replaces the step of a command that no saved run explains. // I19
const unasked = "unsaved"

// failingKube has a point before and after every write of a run, and of the
// Lease.
type failingKube struct{ engine.Kube }

func (k failingKube) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	reach(r.Target.Node, "before", "write", string(r.Step), string(a))
	err := k.Kube.Act(ctx, r, a, backups, b)
	reach(r.Target.Node, "after", "write", string(r.Step), string(a))
	return err
}

func (k failingKube) Restore(ctx context.Context, r remediate.Run, backups [][]byte) ([]string, error) {
	reach(r.Target.Node, "before", "write", string(r.Step), string(remediate.RestoreTargetNode))
	readBack, err := k.Kube.Restore(ctx, r, backups)
	reach(r.Target.Node, "after", "write", string(r.Step), string(remediate.RestoreTargetNode))
	return readBack, err
}

func (k failingKube) LockNode(ctx context.Context, r remediate.Run) (time.Duration, string, error) {
	reach(r.Target.Node, "before", "write", string(r.Step), "LockNode")
	binds, foreign, err := k.Kube.LockNode(ctx, r)
	reach(r.Target.Node, "after", "write", string(r.Step), "LockNode")
	return binds, foreign, err
}

func (k failingKube) UnlockNode(ctx context.Context, r remediate.Run) error {
	reach(r.Target.Node, "before", "write", string(r.Step), "UnlockNode")
	err := k.Kube.UnlockNode(ctx, r)
	reach(r.Target.Node, "after", "write", string(r.Step), "UnlockNode")
	return err
}

func (k failingKube) Announce(ctx context.Context, a lead.Announcement) (time.Duration, string, error) {
	reach("", "before", "write", "Lease")
	binds, foreign, err := k.Kube.Announce(ctx, a)
	reach("", "after", "write", "Lease")
	return binds, foreign, err
}

// failingRequests kills around what is written to a remediation request.
type failingRequests struct{ engine.Requests }

func (k failingRequests) SetFinalizer(ctx context.Context, q remediate.Request, run string) error {
	reach("", "before", "write", "finalizer")
	err := k.Requests.SetFinalizer(ctx, q, run)
	reach("", "after", "write", "finalizer")
	return err
}

func (k failingRequests) RemoveFinalizer(ctx context.Context, q remediate.Request, heldBy string) error {
	reach("", "before", "write", "release")
	err := k.Requests.RemoveFinalizer(ctx, q, heldBy)
	reach("", "after", "write", "release")
	return err
}

// failingChecks has a point before and after every write to a check.
type failingChecks struct{ engine.Checks }

func (k failingChecks) WriteStatus(ctx context.Context, r policy.CheckReport) error {
	reach("", "before", "write", "status")
	err := k.Checks.WriteStatus(ctx, r)
	reach("", "after", "write", "status")
	return err
}

// failingRecord has a point before and after a record becomes durable.
func failingRecord(record func(event.Event) error, ev event.Event) error {
	reach(ev.Node, "before", "record", string(ev.Step), string(ev.Action))
	err := record(ev)
	reach(ev.Node, "after", "record", string(ev.Step), string(ev.Action))
	return err
}
