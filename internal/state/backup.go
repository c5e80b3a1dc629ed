package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

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
