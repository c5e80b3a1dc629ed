//go:build failpoint

package failpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// Wrap adds a point before and after every effect of the engine: each save, each
// command to a device and each durable record. WrapCluster does so for a cluster.
func Wrap(o engine.Options) engine.Options {
	if os.Getenv("FENCED_FAILPOINTS") == "" {
		return o
	}
	b := newLogbook()
	o.Store = failingStore{Store: o.Store, book: b}
	if o.Owners != nil { // otherwise they are made from the store
		o.Owners = failingOwners{o.Owners, b}
	}
	if open := o.Open; open != nil {
		o.Open = func(d bmc.Device) (bmc.Power, error) {
			p, err := open(d)
			if err != nil {
				return nil, err
			}
			return failingPower{Power: p, book: b, device: d.Key()}, nil
		}
	}
	if record := o.Record; record != nil {
		o.Record = func(ev event.Event) error { return failingRecord(record, ev) }
	}
	return o
}

// WrapCluster adds a point before and after every write to a cluster. It also lets a test hang its
// deciding loop.
func WrapCluster(o engine.ClusterOptions) engine.ClusterOptions {
	if os.Getenv("FENCED_FAILPOINTS") == "" {
		return o
	}
	o.Kube, o.Watch = failingKube{o.Kube}, hangingWatch{o.Watch}
	if o.Checks != nil {
		o.Checks = failingChecks{o.Checks}
	}
	return o
}

// marking is locked while a point writes its marker, and forever by the point
// that kills, so that no two points claim the same kill.
var marking sync.Mutex

// onlyPoint is the file of the directory that names the one point that kills; without it all do.
const onlyPoint = "only"

// reach kills this process with SIGKILL when a point is reached for the first
// time in the directory FENCED_FAILPOINTS; a marker file per point records that.
// Only tests build with this tag.
func reach(name ...string) {
	dir, point := os.Getenv("FENCED_FAILPOINTS"), strings.Join(slices.DeleteFunc(name, func(s string) bool { return s == "" }), "-")
	if only, err := os.ReadFile(filepath.Join(dir, onlyPoint)); err == nil && strings.TrimSpace(string(only)) != point {
		return
	}
	marking.Lock()
	defer marking.Unlock()
	f, err := os.OpenFile(filepath.Join(dir, point), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_ = f.Close()
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// around reaches the point before an effect. The function that it returns reaches the one after it.
func around(name ...string) (after func()) {
	reach(append([]string{"before"}, name...)...)
	return func() { reach(append([]string{"after"}, name...)...) }
}

// Files of the directory that make a deciding loop hang.
const (
	// hangLoop makes the deciding loop of a cluster hang for good when it next takes in changes.
	hangLoop = "hang"
	// hungLoop is what the loop that hangs makes of that file, so that the next daemon does not hang.
	hungLoop = "hung"
)

// hangingWatch is where a deciding loop can hang while all other goroutines live: nobody else asks for the changes.
type hangingWatch struct{ admit.Watch }

func (w hangingWatch) Changes() []policy.Change {
	dir := os.Getenv("FENCED_FAILPOINTS")
	if os.Rename(filepath.Join(dir, hangLoop), filepath.Join(dir, hungLoop)) == nil {
		select {}
	}
	return w.Watch.Changes()
}

// failingPower has a point before and after every command.
type failingPower struct {
	bmc.Power
	book   *logbook
	device string
}

func (p failingPower) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	defer around("command", c.String(), p.book.commanding(p.device))()
	return p.Power.Send(ctx, c)
}

// commanding returns the step of the open run on a device, and which of the host's
// devices it is: deviceN of Devices.
func (b *logbook) commanding(device string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.runs {
		at := slices.Index(strings.Split(r.Target.Devices, "\n"), device)
		if r.Open() && at >= 0 {
			return fmt.Sprintf("%s-device%d", r.Step, at)
		}
	}
	return unasked
}

// unasked replaces the step of a command that no saved run explains. // I19
const unasked = "unsaved"

// failingKube has a point before and after every write of a run, and of the
// Lease.
type failingKube struct{ engine.Kube }

func (k failingKube) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	defer around("write", string(r.Step), string(a))()
	return k.Kube.Act(ctx, r, a, backups, b)
}

func (k failingKube) Restore(ctx context.Context, r remediate.Run, backups [][]byte) ([]string, error) {
	defer around("write", string(r.Step), string(remediate.RestoreTargetNode))()
	return k.Kube.Restore(ctx, r, backups)
}

func (k failingKube) Announce(ctx context.Context, a lead.Announcement) (time.Duration, string, error) {
	defer around("write", "Lease")()
	return k.Kube.Announce(ctx, a)
}

// failingChecks has a point before and after every write to a check.
type failingChecks struct{ engine.Checks }

func (k failingChecks) WriteStatus(ctx context.Context, r policy.CheckReport) error {
	defer around("write", "status")()
	return k.Checks.WriteStatus(ctx, r)
}

// failingRecord has a point before and after a record becomes durable.
func failingRecord(record func(event.Event) error, ev event.Event) error {
	defer around("record", string(ev.Step), string(ev.Action))()
	return record(ev)
}

// logbook knows every run as it was last saved or loaded. The name of a point
// contains the step of the run.
type logbook struct {
	mu   sync.Mutex
	runs map[string]remediate.Run
}

func newLogbook() *logbook { return &logbook{runs: map[string]remediate.Run{}} }

// decodeSaved decodes the run in a record; ok is false for another kind of
// record.
func decodeSaved(r state.Record) (run remediate.Run, ok bool) {
	saved := struct{ Data *remediate.Run }{&run}
	ok = r.Kind == state.KindRun && json.Unmarshal(r.Data, &saved) == nil
	return run, ok
}

// note records a run.
func (b *logbook) note(r state.Record) {
	run, ok := decodeSaved(r)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs[r.Key] = run
}

// saving returns the name of the point of a record. The name of a run's point
// contains its step, and the action that follows the save.
func (b *logbook) saving(r state.Record) []string {
	run, ok := decodeSaved(r)
	if !ok {
		return []string{string(r.Kind)}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	why := ""
	if run.Intent != b.runs[r.Key].Intent {
		why = string(run.Intent.Action)
	}
	return []string{string(r.Kind), string(run.Step), why}
}

// failingStore has a point before and after every change in a store.
type failingStore struct {
	state.Store
	book *logbook
}

func (s failingStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	after := around(append([]string{"save"}, s.book.saving(r)...)...)
	version, err := s.Store.Put(ctx, r)
	if err == nil {
		s.book.note(r)
		after()
	}
	return version, err
}

func (s failingStore) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	defer around("drop", string(kind))()
	return s.Store.Delete(ctx, kind, key, version)
}

func (s failingStore) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	list, err := s.Store.List(ctx, kind)
	for _, r := range list {
		s.book.note(r)
	}
	return list, err
}

// failingOwners returns claims whose stores have points.
type failingOwners struct {
	state.Owners
	book *logbook
}

func (o failingOwners) Run(ctx context.Context, guard func(context.Context, state.Claim)) error {
	return o.Owners.Run(ctx, func(ctx context.Context, c state.Claim) {
		c.Store = failingStore{Store: c.Store, book: o.book}
		guard(ctx, c)
	})
}
