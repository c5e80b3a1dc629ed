package state

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// FreeSlots frees the slots of several runs at once, and returns the runs that have none now.
// After an error some of the others may have none either.
func FreeSlots(ctx context.Context, s Store, runs []string) (freed []string, err error) {
	slots, unreadable := LoadSlots(ctx, s)
	errs := make([]error, len(runs))
	var g sync.WaitGroup
	for i, run := range runs {
		g.Go(func() { errs[i] = freeSlot(ctx, s, slots, unreadable, run) })
	}
	g.Wait()
	for i, run := range runs {
		if errs[i] == nil {
			freed = append(freed, run)
		}
	}
	return freed, errors.Join(errs...)
}

// freeSlot frees the slot of one run. unreadable is why not all slots are in the list.
func freeSlot(ctx context.Context, s Store, slots []Slot, unreadable error, run string) error {
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
	if !found && unreadable != nil { // the slot that cannot be read may be the one of this run
		return fmt.Errorf("free the slot of run %q: %w", run, unreadable)
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
