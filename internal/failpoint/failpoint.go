//go:build failpoint

package failpoint

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path"
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

// Files of the directory that configure the points.
const (
	// onlyPoints contains patterns, one per line: a point that matches none does
	// not kill.
	onlyPoints = "only"
	// eachNode makes the points of each Node separate points, each of which kills
	// with a chance of one half. The file contains the seed: the same seed chooses
	// the same points.
	eachNode = "each"
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
	if o.Requests != nil {
		o.Requests = failingRequests{o.Requests}
	}
	return o
}

// marking is locked while a point writes its marker, and forever by the point
// that kills, so that no two points claim the same kill.
var marking sync.Mutex

// reach kills this process with SIGKILL when a point is reached for the first
// time in the directory FENCED_FAILPOINTS; a marker file per point records that.
// Only tests build with this tag.
func reach(node string, name ...string) {
	dir, point := os.Getenv("FENCED_FAILPOINTS"), strings.Join(slices.DeleteFunc(name, func(s string) bool { return s == "" }), "-")
	if !chosen(dir, point) {
		return
	}
	spared := false
	if seed, err := os.ReadFile(filepath.Join(dir, eachNode)); err == nil {
		point += "@" + node
		spared = sha256.Sum256(append(seed, point...))[0]%2 == 0
	}
	marking.Lock()
	defer marking.Unlock()
	f, err := os.OpenFile(filepath.Join(dir, point), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	if spared {
		_, _ = f.WriteString("spared") // otherwise the marker is empty
	}
	_ = f.Close()
	if !spared {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// around reaches the point before an effect. The function that it returns reaches the one after it.
func around(node string, name ...string) (after func()) {
	reach(node, append([]string{"before"}, name...)...)
	return func() { reach(node, append([]string{"after"}, name...)...) }
}

// chosen reports whether a point may kill.
func chosen(dir, point string) bool {
	text, err := os.ReadFile(filepath.Join(dir, onlyPoints))
	if err != nil { // there is no such list
		return true
	}
	for pattern := range strings.FieldsSeq(string(text)) {
		if ok, _ := path.Match(pattern, point); ok {
			return true
		}
	}
	return false
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
	node, name := p.book.commanding(p.device)
	defer around(node, "command", c.String(), name)()
	return p.Power.Send(ctx, c)
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
	defer around(r.Target.Node, "write", string(r.Step), string(a))()
	return k.Kube.Act(ctx, r, a, backups, b)
}

func (k failingKube) Restore(ctx context.Context, r remediate.Run, backups [][]byte) ([]string, error) {
	defer around(r.Target.Node, "write", string(r.Step), string(remediate.RestoreTargetNode))()
	return k.Kube.Restore(ctx, r, backups)
}

func (k failingKube) LockNode(ctx context.Context, r remediate.Run) (time.Duration, string, error) {
	defer around(r.Target.Node, "write", string(r.Step), "LockNode")()
	return k.Kube.LockNode(ctx, r)
}

func (k failingKube) UnlockNode(ctx context.Context, r remediate.Run) error {
	defer around(r.Target.Node, "write", string(r.Step), "UnlockNode")()
	return k.Kube.UnlockNode(ctx, r)
}

func (k failingKube) Announce(ctx context.Context, a lead.Announcement) (time.Duration, string, error) {
	defer around("", "write", "Lease")()
	return k.Kube.Announce(ctx, a)
}

// failingRequests kills around what is written to a remediation request.
type failingRequests struct{ engine.Requests }

func (k failingRequests) SetFinalizer(ctx context.Context, q remediate.Request, run string) error {
	defer around("", "write", "finalizer")()
	return k.Requests.SetFinalizer(ctx, q, run)
}

func (k failingRequests) RemoveFinalizer(ctx context.Context, q remediate.Request, heldBy string) error {
	defer around("", "write", "release")()
	return k.Requests.RemoveFinalizer(ctx, q, heldBy)
}

// failingChecks has a point before and after every write to a check.
type failingChecks struct{ engine.Checks }

func (k failingChecks) WriteStatus(ctx context.Context, r policy.CheckReport) error {
	defer around("", "write", "status")()
	return k.Checks.WriteStatus(ctx, r)
}

// failingRecord has a point before and after a record becomes durable.
func failingRecord(record func(event.Event) error, ev event.Event) error {
	defer around(ev.Node, "record", string(ev.Step), string(ev.Action))()
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

// saving returns the Node and the name of the point of a record. The name of a
// run's point contains its step, and the action that follows the save, or that a
// person ordered something.
func (b *logbook) saving(r state.Record) (node string, name []string) {
	run, ok := decodeSaved(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.runs[r.Key] // also for a backup, which has the run's key
	if !ok {
		return last.Target.Node, []string{string(r.Kind)}
	}
	why := ""
	switch {
	case ordered(run) > ordered(last):
		why = "ordered"
	case run.Intent != last.Intent:
		why = string(run.Intent.Action)
	}
	return run.Target.Node, []string{string(r.Kind), string(run.Step), why}
}

// ordered counts the orders of people in a run.
func ordered(r remediate.Run) (n int) {
	for _, o := range []*remediate.Order{r.Unfence, r.Abort, r.Retry, r.Confirmed} {
		if o != nil {
			n++
		}
	}
	return n
}

// failingStore has a point before and after every change in a store.
type failingStore struct {
	state.Store
	book *logbook
}

func (s failingStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	node, name := s.book.saving(r)
	reach(node, append([]string{"before", "save"}, name...)...)
	version, err := s.Store.Put(ctx, r)
	if err == nil {
		s.book.note(r)
		reach(node, append([]string{"after", "save"}, name...)...)
	}
	return version, err
}

func (s failingStore) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	defer around("", "drop", string(kind))()
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
