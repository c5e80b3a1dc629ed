package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// SaveRun writes the run durably and returns it with its new version. The
// engine acts only on what this returned. // I19
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

// GetRun reads one run; ErrNotFound when there is none.
func GetRun(ctx context.Context, s Store, id string) (remediate.Run, error) {
	r, err := s.Get(ctx, KindRun, id)
	if err != nil {
		return remediate.Run{}, err
	}
	return decodeRun(r)
}

// LoadRuns reads all runs. A record that cannot be read does not hide the
// others: the good ones are returned beside an error that names each bad one.
func LoadRuns(ctx context.Context, s Store) ([]remediate.Run, error) {
	return load(ctx, s, KindRun, decodeRun)
}

// PruneRuns deletes the runs that ended before the given time and says how
// many. Open and unreadable ones stay.
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

// load decodes every record of a kind, the good beside an error for the bad.
func load[T any](ctx context.Context, s Store, kind Kind, decode func(Record) (T, error)) ([]T, error) {
	records, err := s.List(ctx, kind)
	if err != nil {
		return nil, err
	}
	list := make([]T, 0, len(records))
	var bad []error
	for _, r := range records {
		v, err := decode(r)
		if err != nil {
			bad = append(bad, unreadable{err})
			continue
		}
		list = append(list, v)
	}
	return list, errors.Join(bad...)
}

// ErrUnreadable marks the error beside a list that lacks only the records that cannot be
// decoded.
var ErrUnreadable = errors.New("unreadable records")

// unreadable is why one record of a list is not in it.
type unreadable struct{ error }

func (unreadable) Is(target error) bool { return target == ErrUnreadable }

func (u unreadable) Unwrap() error { return u.error }

func decodeRun(r Record) (remediate.Run, error) {
	var run remediate.Run
	err := decode(r.Data, &run)
	if err == nil {
		err = checkRun(run)
	}
	if err == nil && run.ID != r.Key {
		err = fmt.Errorf("it calls itself %q", run.ID)
	}
	if err != nil {
		return remediate.Run{}, fmt.Errorf("read %s: %w", RecordName(KindRun, r.Key), err)
	}
	run.Version = r.Version
	return run, nil
}

// checkRun refuses what no step could continue, on the way in and out: a run
// that cannot be read again would leave its host unattended.
func checkRun(run remediate.Run) error {
	if err := CheckKey(KindRun, run.ID); err != nil {
		return err
	}
	switch run.Step {
	case remediate.PowerOff, remediate.DeleteNode, remediate.PowerOn, remediate.AwaitNode,
		remediate.RestoreNode, remediate.Reprovision,
		remediate.Held, remediate.Done, remediate.Aborted, remediate.Reprovisioned:
		return nil
	}
	return fmt.Errorf("unknown step %q", run.Step)
}
