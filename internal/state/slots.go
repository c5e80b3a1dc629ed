package state

import (
	"context"
	"errors"
	"fmt"
)

// maxSlots is the largest limit: the keys have four digits, so that their order is
// that of the numbers.
const maxSlots = 9999

// Slot is one of the places for runs in flight, over all clusters and instances
// that share a store. // I11
type Slot struct {
	Cluster string `json:"cluster"`
	Run     string `json:"run"`

	Key     string `json:"-"`
	Version uint64 `json:"-"`
}

// TakeSlot gives the holder's run a slot and says whether it has one now; a run that
// has one keeps it. A slot is a record that must not exist, and there are as many keys
// as the limit allows. Keys above it, of a limit that was larger, count too: so who took
// one looks again, and gives it back where there are too many. // I11
func TakeSlot(ctx context.Context, s Store, limit int, holder Slot) (bool, error) {
	if holder.Run == "" {
		return false, errors.New("take a slot: it needs the run's id")
	}
	has, err := takeSlot(ctx, s, limit, holder)
	if err != nil {
		return false, fmt.Errorf("take a slot for run %q: %w", holder.Run, err)
	}
	return has, nil
}

func takeSlot(ctx context.Context, s Store, limit int, holder Slot) (bool, error) {
	data, err := encode(holder)
	if err != nil {
		return false, err
	}
	// A slot that cannot be read is taken all the same, so records are counted.
	records, err := s.List(ctx, KindSlot)
	if err != nil {
		return false, err
	}
	taken := map[string]bool{}
	for _, r := range records {
		taken[r.Key] = true
		if old, err := decodeSlot(r); err == nil && old.Run == holder.Run {
			return true, nil
		}
	}
	if len(records) >= limit { // also where the limit was lowered below a key in use
		return false, nil
	}
	for n := 1; n <= min(limit, maxSlots); n++ {
		key := fmt.Sprintf("%04d", n)
		if taken[key] {
			continue
		}
		version, err := s.Put(ctx, Record{Kind: KindSlot, Key: key, Data: data})
		switch {
		case errors.Is(err, ErrExists): // another run was quicker
			continue
		case err != nil:
			return false, err
		}
		if records, err = s.List(ctx, KindSlot); err != nil || len(records) <= limit {
			return err == nil, err
		}
		return false, s.Delete(ctx, KindSlot, key, version)
	}
	return false, nil
}

// FreeSlot gives the run's slot back. To free one again does nothing.
func FreeSlot(ctx context.Context, s Store, run string) error {
	slots, err := LoadSlots(ctx, s)
	found := false
	for _, slot := range slots {
		if slot.Run != run {
			continue
		}
		found = true
		if err := s.Delete(ctx, KindSlot, slot.Key, slot.Version); err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("free the slot of run %q: %w", run, err)
		}
	}
	if !found && err != nil { // the one that cannot be read may be this run's
		return fmt.Errorf("free the slot of run %q: %w", run, err)
	}
	return nil
}

// LoadSlots reads the slots that are taken, beside an error that names each
// unreadable one.
func LoadSlots(ctx context.Context, s Store) ([]Slot, error) {
	return load(ctx, s, KindSlot, decodeSlot)
}

func decodeSlot(r Record) (Slot, error) {
	var slot Slot
	err := decode(r.Data, &slot)
	if err == nil && slot.Run == "" {
		err = errors.New("it names no run")
	}
	if err != nil {
		return Slot{}, fmt.Errorf("read %s: %w", RecordName(KindSlot, r.Key), err)
	}
	slot.Key, slot.Version = r.Key, r.Version
	return slot, nil
}
