package state

import (
	"context"
	"errors"
	"fmt"
)

// maxSlots is the largest limit. Keys have four digits, so that their order is the order of
// the numbers.
const maxSlots = 9999

// Slot is one of the places for runs in flight. All clusters and instances that share a
// store also share its slots. // I11
type Slot struct {
	Cluster string `json:"cluster"`
	Run     string `json:"run"`

	Key     string `json:"-"`
	Version uint64 `json:"-"`
}

// TakeSlot takes a slot for holder.Run and returns whether the run has one now. A run that
// has a slot keeps it. If TakeSlot returns an error, the run may have a slot.
//
// To take a slot is to create a record, and there are as many keys as the limit allows. Keys
// above the limit, from a time with a larger limit, count too. So TakeSlot counts again
// after it took a slot, and frees the slot if there are too many. // I11
func TakeSlot(ctx context.Context, s Store, limit int, holder Slot) (bool, error) {
	if holder.Run == "" {
		return false, errors.New("take a slot: the run has no ID")
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
	// Records are counted, not slots: a slot that cannot be read is taken too.
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
	if len(records) >= limit { // also if a key above a lowered limit is in use
		return false, nil
	}
	for n := 1; n <= min(limit, maxSlots); n++ {
		key := fmt.Sprintf("%04d", n)
		if taken[key] {
			continue
		}
		version, err := s.Put(ctx, Record{Kind: KindSlot, Key: key, Data: data})
		switch {
		case errors.Is(err, ErrExists): // another run was faster
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

// FreeSlot frees the slot of a run. It does nothing if the run has no slot. It returns an
// error if a slot that cannot be read may be the one of the run.
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
	if !found && err != nil { // the slot that cannot be read may be the one of this run
		return fmt.Errorf("free the slot of run %q: %w", run, err)
	}
	return nil
}

// LoadSlots returns the slots that are taken, and an error (ErrUnreadable) that names each
// record that cannot be read.
func LoadSlots(ctx context.Context, s Store) ([]Slot, error) {
	return decodeAll(ctx, s, KindSlot, decodeSlot)
}

func decodeSlot(r Record) (Slot, error) {
	var slot Slot
	err := decode(r.Data, &slot)
	if err == nil && slot.Run == "" {
		err = errors.New("the slot names no run")
	}
	if err != nil {
		return Slot{}, fmt.Errorf("read %s: %w", RecordName(KindSlot, r.Key), err)
	}
	slot.Key, slot.Version = r.Key, r.Version
	return slot, nil
}
