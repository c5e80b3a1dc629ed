package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

var runRecord = recordType[remediate.Run]{
	kind: KindRun, key: func(r remediate.Run) string { return r.ID }, version: func(r *remediate.Run) *uint64 { return &r.Version },
	name:  func(r remediate.Run) string { return fmt.Sprintf("run %q", r.ID) },
	check: checkRun,
}

// SaveRun writes the run durably and returns it with its new version. The engine acts only
// on a run that SaveRun returned without an error. For the errors see Store.Put. // I19
func SaveRun(ctx context.Context, s Store, run remediate.Run) (remediate.Run, error) {
	return runRecord.save(ctx, s, run)
}

// GetRun returns one run, or ErrNotFound.
func GetRun(ctx context.Context, s Store, id string) (remediate.Run, error) {
	r, err := s.Get(ctx, KindRun, id)
	if err != nil {
		return remediate.Run{}, err
	}
	return decodeRun(r)
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
	runs, err = decodeAll(ctx, s, KindRun, func(r Record) (remediate.Run, error) {
		run, err := decodeRun(r)
		if err != nil && hasEnded(r) {
			aside = append(aside, AsideRun{r.Key, err})
			return run, errSetAside
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
		if e := s.Delete(ctx, KindRun, run.ID, run.Version); e != nil {
			err = errors.Join(err, e)
			continue
		}
		n++
	}
	return n, err
}

func decodeRun(r Record) (remediate.Run, error) {
	run, err := runRecord.decode(r)
	if err != nil {
		return run, err
	}
	if err := checkRun(run); err != nil {
		return remediate.Run{}, fmt.Errorf("read %s: %w", RecordName(KindRun, r.Key), err)
	}
	return run, nil
}

// checkRun refuses a run that no step can continue. It is called before a save and after a
// read: a run that cannot be read again would leave its host unattended.
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

// SaveBackup saves a Node for its run, reads it back and compares. The Node may be deleted
// only after SaveBackup returned nil. For the errors see Store.Put. // I21
func SaveBackup(ctx context.Context, s Store, b Backup) error {
	if err := saveBackup(ctx, s, b); err != nil {
		return fmt.Errorf("save Node %s of run %q: %w", b.NodeUID, b.RunID, err)
	}
	return nil
}

func saveBackup(ctx context.Context, s Store, b Backup) error {
	if b.NodeUID == "" || !json.Valid(b.Node) {
		return errors.New("the backup lacks the UID of the Node or its JSON")
	}
	list, version, err := backups(ctx, s, b.RunID)
	if err != nil {
		return err
	}
	data, err := encode(addBackup(list, b))
	if err != nil {
		return err
	}
	if _, err := s.Put(ctx, Record{Kind: KindBackup, Key: b.RunID, Version: version, Data: data}); err != nil {
		return err
	}
	list, _, err = backups(ctx, s, b.RunID)
	if err != nil {
		return err
	}
	if len(list) == 0 || !bytes.Equal(list[len(list)-1].Node, b.Node) {
		return errors.New("the record read back differs from the record written")
	}
	return nil
}

// addBackup appends b and keeps at most two backups of each Node UID, so that a Node that
// keeps changing does not make the record grow. The first is the Node that the run found,
// and the newest is the Node that was deleted.
func addBackup(list []Backup, b Backup) []Backup {
	kept := make([]Backup, 0, len(list)+1)
	first := true
	for _, old := range list {
		if old.NodeUID == b.NodeUID {
			if !first {
				continue
			}
			first = false
		}
		kept = append(kept, old)
	}
	return append(kept, b)
}

// Backups returns the Nodes saved for a run, oldest first. A run without backups is no
// error.
func Backups(ctx context.Context, s Store, runID string) ([]Backup, error) {
	list, _, err := backups(ctx, s, runID)
	return list, err
}

func backups(ctx context.Context, s Store, runID string) ([]Backup, uint64, error) {
	r, err := s.Get(ctx, KindBackup, runID)
	if errors.Is(err, ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	list, err := decodeBackups(r)
	return list, r.Version, err
}

func decodeBackups(r Record) ([]Backup, error) {
	var list []Backup
	if err := decode(r.Data, &list); err != nil {
		return nil, fmt.Errorf("read %s: %w", RecordName(KindBackup, r.Key), err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("read %s: the record holds no Node", RecordName(KindBackup, r.Key))
	}
	return list, nil
}

// PruneBackups deletes all backups of each run whose newest backup is older than the given
// time, unless keep returns true for that run. It returns the number of runs. It keeps
// unreadable records. The error names each record that it could not read or delete.
func PruneBackups(ctx context.Context, s Store, olderThan time.Time, keep func(runID string) bool) (int, error) {
	records, err := s.List(ctx, KindBackup)
	if err != nil {
		return 0, err
	}
	var bad []error
	n := 0
	for _, r := range records {
		list, err := decodeBackups(r)
		if err == nil && (!list[len(list)-1].Saved.Before(olderThan) || keep(r.Key)) {
			continue
		}
		if err == nil {
			err = s.Delete(ctx, r.Kind, r.Key, r.Version)
		}
		if err != nil {
			bad = append(bad, err)
			continue
		}
		n++
	}
	return n, errors.Join(bad...)
}
