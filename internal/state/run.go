package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// SaveRun writes the run durably and returns it with its new version. The engine acts only
// on a run that SaveRun returned without an error. For the errors see Store.Put. // I19
func SaveRun(ctx context.Context, s Store, run remediate.Run) (remediate.Run, error) {
	if err := checkRun(run); err != nil {
		return run, fmt.Errorf("save run %q: %w", run.ID, err)
	}
	data, err := encode(run)
	if err != nil {
		return run, fmt.Errorf("save run %q: %w", run.ID, err)
	}
	version, err := s.Put(ctx, Record{Kind: KindRun, Key: run.ID, Version: run.Version, Data: data})
	if err != nil {
		return run, fmt.Errorf("save run %q: %w", run.ID, err)
	}
	run.Version = version
	return run, nil
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

// hasEnded says whether a record that cannot be read shows beyond doubt that its run has ended: it is whole, of a version that this
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

// errSetAside makes decodeAll leave out a record.
var errSetAside = errors.New("set aside")

// decodeAll returns every record of a kind that decode accepts, and an error that names
// the others.
func decodeAll[T any](ctx context.Context, s Store, kind Kind, decode func(Record) (T, error)) ([]T, error) {
	records, err := s.List(ctx, kind)
	if err != nil {
		return nil, err
	}
	list := make([]T, 0, len(records))
	var bad []error
	for _, r := range records {
		v, err := decode(r)
		if errors.Is(err, errSetAside) {
			continue
		}
		if err != nil {
			bad = append(bad, unreadableError{err})
			continue
		}
		list = append(list, v)
	}
	return list, errors.Join(bad...)
}

// ErrUnreadable marks the error that comes with a list. The list holds all records except
// those that cannot be decoded.
var ErrUnreadable = errors.New("unreadable records")

// unreadableError says why one record cannot be decoded.
type unreadableError struct{ error }

func (unreadableError) Is(target error) bool { return target == ErrUnreadable }

func (u unreadableError) Unwrap() error { return u.error }

func decodeRun(r Record) (remediate.Run, error) {
	var run remediate.Run
	err := decode(r.Data, &run)
	if err == nil {
		err = checkRun(run)
	}
	if err == nil && run.ID != r.Key {
		err = fmt.Errorf("it holds the record of %q", run.ID)
	}
	if err != nil {
		return remediate.Run{}, fmt.Errorf("read %s: %w", RecordName(KindRun, r.Key), err)
	}
	run.Version = r.Version
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
