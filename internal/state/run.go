package state

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

var runRecord = RecordType[remediate.Run]{
	Kind: KindRun, Key: func(r remediate.Run) string { return r.ID }, Version: func(r *remediate.Run) *uint64 { return &r.Version },
	Name:  func(r remediate.Run) string { return fmt.Sprintf("run %q", r.ID) },
	Check: checkRun,
}

// SaveRun writes the run durably and returns it with its new version. The engine acts only
// on a run that SaveRun returned without an error. For the errors see Store.Put. // I19
func SaveRun(ctx context.Context, s Store, run remediate.Run) (remediate.Run, error) {
	return runRecord.Save(ctx, s, run)
}

// GetRun returns one run, or ErrNotFound.
func GetRun(ctx context.Context, s Store, id string) (remediate.Run, error) {
	return runRecord.get(ctx, s, id)
}

// LoadRuns is LoadAllRuns without the runs that were set aside.
func LoadRuns(ctx context.Context, s Store) ([]remediate.Run, error) {
	runs, _, err := LoadAllRuns(ctx, s)
	return runs, err
}

// AsideRun is a run that has ended and whose record cannot be read. The record stays in the store as it is.
type AsideRun struct {
	ID  string
	Err error
}

// LoadAllRuns returns all runs that can be read, and those that were set aside. The error (ErrUnreadable) names each other
// record: that run may be open, and its host off. If the store cannot be listed, it returns no run. // I20
func LoadAllRuns(ctx context.Context, s Store) (runs []remediate.Run, aside []AsideRun, err error) {
	runs, err = DecodeAll(ctx, s, KindRun, func(r Record) (remediate.Run, error) {
		run, err := runRecord.Decode(r)
		if err != nil && hasEnded(r) {
			aside = append(aside, AsideRun{r.Key, err})
			return run, ErrSetAside
		}
		return run, err
	})
	return runs, aside, err
}

// hasEnded returns whether a record that cannot be read shows beyond doubt that its run has ended: it is whole, of a version that this
// program knows, of this run, and has the time of its end. Nothing is written any more for such a run, so nothing is lost.
func hasEnded(r Record) bool {
	var stored struct {
		V    int `json:"v"`
		Data struct {
			ID    string         `json:"id"`
			Step  remediate.Step `json:"step"`
			Ended time.Time      `json:"ended"`
		} `json:"data"`
	}
	if err := json.Unmarshal(r.Data, &stored); err != nil || stored.V < 1 || stored.V > codecVersion {
		return false
	}
	return stored.Data.ID == r.Key && stored.Data.Step.Ended() && !stored.Data.Ended.IsZero()
}

// PruneRuns deletes the runs that ended before the given time and returns their number. It
// keeps open runs and unreadable records. The error names each record that it could not
// read or delete.
func PruneRuns(ctx context.Context, s Store, endedBefore time.Time) (int, error) {
	runs, err := LoadRuns(ctx, s)
	n := 0
	for _, run := range runs {
		if run.Open() || run.Ended.IsZero() || !run.Ended.Before(endedBefore) {
			continue
		}
		if e := runRecord.Delete(ctx, s, run); e != nil {
			err = errors.Join(err, e)
			continue
		}
		n++
	}
	return n, err
}

// checkRun refuses a run that no step can continue: a run that cannot be read again would leave
// its host unattended.
func checkRun(run remediate.Run) error {
	if err := CheckKey(KindRun, run.ID); err != nil {
		return err
	}
	switch run.Step {
	case remediate.PowerOff, remediate.DeleteNode, remediate.PowerOn, remediate.AwaitNode,
		remediate.RestoreNode, remediate.Reprovision,
		remediate.Held, remediate.Done, remediate.Aborted, remediate.Reprovisioned:
		return nil
	case remediate.Waiting:
		if run.Wait == nil {
			return errors.New("it is Waiting, and does not say for what")
		}
		return nil
	}
	return fmt.Errorf("unknown step %q", run.Step)
}

// Backup is a complete Node as it was before fenced deleted it.
type Backup struct {
	RunID           string    `json:"runID"`
	NodeUID         string    `json:"nodeUID"`
	ResourceVersion string    `json:"resourceVersion"`
	Saved           time.Time `json:"saved"`
	// Node is the JSON of the object. Every byte of it is kept.
	Node []byte `json:"node"`
}

// savedNodes are the Nodes saved for one run, the oldest first.
type savedNodes struct {
	run     string
	version uint64
	list    []Backup
}

// newest is the zero value if there is none.
func (n *savedNodes) newest() (last Backup) {
	if len(n.list) > 0 {
		last = n.list[len(n.list)-1]
	}
	return last
}

var backupRecord = RecordType[savedNodes]{
	Kind: KindBackup, Key: func(n savedNodes) string { return n.run }, Version: func(n *savedNodes) *uint64 { return &n.version },
	Name:   func(n savedNodes) string { return fmt.Sprintf("Node %s of run %q", n.newest().NodeUID, n.run) },
	Stored: func(n *savedNodes) any { return &n.list },
	Under: func(n *savedNodes, key string) error {
		n.run = key
		return nil
	},
	Check: func(n savedNodes) error {
		if len(n.list) == 0 {
			return errors.New("the record holds no Node")
		}
		return nil
	},
}

// SaveBackup saves a Node for its run, reads it back and compares. The Node may be deleted
// only after SaveBackup returned nil. For the errors see Store.Put. // I21
func SaveBackup(ctx context.Context, s Store, b Backup) error {
	failed := func(err error) error { return fmt.Errorf("save Node %s of run %q: %w", b.NodeUID, b.RunID, err) }
	if b.NodeUID == "" || !json.Valid(b.Node) {
		return failed(errors.New("the backup lacks the UID of the Node or its JSON"))
	}
	n, err := loadBackups(ctx, s, b.RunID)
	if err != nil {
		return failed(err)
	}
	// At most two of each Node UID are kept, so that a Node that keeps changing does not make the
	// record grow: the first is the Node that the run found, and the newest the one that is deleted.
	found := false
	n.list = append(slices.DeleteFunc(n.list, func(old Backup) bool {
		again := found && old.NodeUID == b.NodeUID
		found = found || old.NodeUID == b.NodeUID
		return again
	}), b)
	n.list = dropInBetween(n.list)
	if _, err := backupRecord.Save(ctx, s, n); err != nil {
		return err
	}
	if n, err = loadBackups(ctx, s, b.RunID); err != nil {
		return failed(err)
	}
	if !bytes.Equal(n.newest().Node, b.Node) {
		return failed(errors.New("the record read back differs from the record written"))
	}
	return nil
}

// maxBackups is how large the record of the backups of a run may be. Only the tests make it smaller.
var maxBackups = MaxData

// backupOverhead is more than one backup has beside its Node, and the record beside its backups, in bytes.
const backupOverhead = 4 << 10

// dropInBetween returns the backups without the oldest of those Nodes that are neither the one that the run found nor the newest, as far
// as the record would be too large: a run may try again for weeks and find another Node each time, and one that cannot be saved is never
// isolated. // I21, L5
func dropInBetween(list []Backup) []Backup {
	size := backupOverhead
	for _, b := range list {
		size += base64.StdEncoding.EncodedLen(len(b.Node)) + backupOverhead
	}
	for size > maxBackups {
		i := slices.IndexFunc(list, func(b Backup) bool { return b.NodeUID != list[0].NodeUID })
		if i < 0 || i == len(list)-1 {
			break
		}
		size -= base64.StdEncoding.EncodedLen(len(list[i].Node)) + backupOverhead
		list = slices.Delete(list, i, i+1)
	}
	return list
}

// Backups returns the Nodes saved for a run, oldest first. A run without backups is no
// error.
func Backups(ctx context.Context, s Store, runID string) ([]Backup, error) {
	n, err := loadBackups(ctx, s, runID)
	return n.list, err
}

func loadBackups(ctx context.Context, s Store, runID string) (savedNodes, error) {
	n, err := backupRecord.get(ctx, s, runID)
	if errors.Is(err, ErrNotFound) {
		return savedNodes{run: runID}, nil
	}
	return n, err
}

// PruneBackups deletes all backups of each run whose newest backup is older than the given
// time, unless keep returns true for that run. It returns the number of runs. It keeps
// unreadable records. The error names each record that it could not read or delete.
func PruneBackups(ctx context.Context, s Store, olderThan time.Time, keep func(runID string) bool) (int, error) {
	all, err := backupRecord.list(ctx, s)
	n := 0
	for _, each := range all {
		if !each.newest().Saved.Before(olderThan) || keep(each.run) {
			continue
		}
		if e := backupRecord.Delete(ctx, s, each); e != nil {
			err = errors.Join(err, e)
			continue
		}
		n++
	}
	return n, err
}
