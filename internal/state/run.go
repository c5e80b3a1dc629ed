package state

import (
	"context"
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

// LoadRuns returns all runs that can be read, and an error (ErrUnreadable) that names each
// record that cannot. If the store cannot be listed, it returns no run.
func LoadRuns(ctx context.Context, s Store) ([]remediate.Run, error) {
	return decodeAll(ctx, s, KindRun, decodeRun)
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
