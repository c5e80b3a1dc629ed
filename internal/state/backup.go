package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Backup is a whole Node as it was before fenced deleted it.
type Backup struct {
	RunID           string    `json:"runID"`
	NodeUID         string    `json:"nodeUID"`
	ResourceVersion string    `json:"resourceVersion"`
	Saved           time.Time `json:"saved"`
	// Node is the object's JSON, kept byte for byte.
	Node []byte `json:"node"`
}

// SaveBackup keeps a Node for its run, reads it back and compares. Only after
// nil may the Node be deleted. // I21
func SaveBackup(ctx context.Context, s Store, b Backup) error {
	if err := saveBackup(ctx, s, b); err != nil {
		return fmt.Errorf("save Node %s of run %q: %w", b.NodeUID, b.RunID, err)
	}
	return nil
}

func saveBackup(ctx context.Context, s Store, b Backup) error {
	if b.NodeUID == "" || !json.Valid(b.Node) {
		return errors.New("the backup needs the Node's UID and its JSON")
	}
	list, version, err := backups(ctx, s, b.RunID)
	if err != nil {
		return err
	}
	data, err := encode(keepBackup(list, b))
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
		return errors.New("what was read back differs from what was written")
	}
	return nil
}

// keepBackup appends b. Of one Node UID the first and the newest stay: the
// first shows what the run found, the newest what was there at the deletion,
// and a Node that keeps changing cannot make the record grow.
func keepBackup(list []Backup, b Backup) []Backup {
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

// Backups returns the Nodes saved for a run, oldest first; none is no error.
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
		return nil, fmt.Errorf("read %s: there is no Node in it", RecordName(KindBackup, r.Key))
	}
	return list, nil
}

// PruneBackups deletes the backups of every run whose newest one is older than
// the given time, unless keep wants that run's, and says of how many runs.
// Unreadable ones stay.
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
