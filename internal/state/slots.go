package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

var slotRecord = RecordType[Slot]{
	Kind: KindSlot, Key: func(s Slot) string { return s.Key }, Version: func(s *Slot) *uint64 { return &s.Version },
	Name: func(s Slot) string { return "slot " + s.Key },
	Under: func(s *Slot, key string) error {
		s.Key = key
		return nil
	},
	Check: func(s Slot) error {
		if s.Run == "" {
			return errors.New("the slot names no run")
		}
		return nil
	},
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
		if err := slotRecord.Delete(ctx, s, slot); err != nil && !errors.Is(err, ErrNotFound) {
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
func LoadSlots(ctx context.Context, s Store) ([]Slot, error) { return slotRecord.list(ctx, s) }

// SlotRequest asks for a slot for Holder.Run, if fewer than Limit are taken.
type SlotRequest struct {
	Holder Slot
	Limit  int
}

// SlotResult says whether the run has a slot now. If Err is not nil, the run may have one.
type SlotResult struct {
	Has bool
	Err error
}

// TakeSlots takes slots for several runs at once, the first of them first. A run that has a slot
// keeps it. The slots are written at the same time, so that a store can make them durable
// together.
//
// To take a slot is to create a record, and there are as many keys as the limit allows. Keys
// above the limit, from a time with a larger limit, count too. So TakeSlots counts again after
// it took slots, and frees those that are too many, the last first. // I11
func TakeSlots(ctx context.Context, s Store, requests []SlotRequest) []SlotResult {
	t := slotTaker{store: s, requests: requests, results: make([]SlotResult, len(requests))}
	open := make([]int, len(requests))
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		open = t.round(ctx, open)
	}
	for i, r := range t.results {
		if r.Err != nil {
			t.results[i].Err = fmt.Errorf("take a slot for run %q: %w", requests[i].Holder.Run, r.Err)
		}
	}
	return t.results
}

type slotTaker struct {
	store    Store
	requests []SlotRequest
	results  []SlotResult
}

// slotPlan is a slot that a request is going to take.
type slotPlan struct {
	request int
	slot    Slot
	err     error
}

// round takes free keys for the open requests. It returns those whose key another instance was
// faster to take, or another request for the same run is taking.
func (t *slotTaker) round(ctx context.Context, open []int) (again []int) {
	// Records are counted, not slots: a slot that cannot be read is taken too.
	records, err := t.store.List(ctx, KindSlot)
	if err != nil {
		t.fail(open, err)
		return nil
	}
	plans, again := t.plan(records, open)
	var g sync.WaitGroup
	for i := range plans {
		g.Go(func() { plans[i].slot, plans[i].err = slotRecord.Save(ctx, t.store, plans[i].slot) })
	}
	g.Wait()
	var accepted []*slotPlan
	for i := range plans {
		p := &plans[i]
		switch {
		case errors.Is(p.err, ErrExists):
			again = append(again, p.request)
		case p.err != nil:
			t.results[p.request].Err = p.err
		default:
			t.results[p.request].Has = true
			accepted = append(accepted, p)
		}
	}
	t.freeExcess(ctx, accepted)
	slices.Sort(again)
	return again
}

// plan gives each open request the lowest key that is free, if its limit allows one.
func (t *slotTaker) plan(records []Record, open []int) (plans []slotPlan, again []int) {
	taken, runs := map[string]bool{}, map[string]bool{}
	for _, r := range records {
		taken[r.Key] = true
		if old, err := slotRecord.Decode(r); err == nil {
			runs[old.Run] = true
		}
	}
	planned := map[string]bool{}
	for _, i := range open {
		holder, limit := t.requests[i].Holder, t.requests[i].Limit
		run := holder.Run
		switch {
		case run == "":
			t.results[i].Err = errors.New("the run has no ID")
			continue
		case runs[run]:
			t.results[i].Has = true
			continue
		case planned[run]:
			again = append(again, i)
			continue
		case len(taken) >= limit: // also if a key above a lowered limit is in use
			continue
		}
		for n := 1; n <= min(limit, maxSlots); n++ {
			if key := fmt.Sprintf("%04d", n); !taken[key] {
				taken[key], planned[run] = true, true
				plans = append(plans, slotPlan{request: i, slot: Slot{Cluster: holder.Cluster, Run: run, Key: key}})
				break
			}
		}
	}
	return plans, again
}

// freeExcess counts again, and frees what was taken above the limits.
func (t *slotTaker) freeExcess(ctx context.Context, accepted []*slotPlan) {
	if len(accepted) == 0 {
		return
	}
	records, err := t.store.List(ctx, KindSlot)
	count := len(records)
	for _, p := range slices.Backward(accepted) {
		switch {
		case err != nil:
			t.results[p.request] = SlotResult{Err: err}
		case count > t.requests[p.request].Limit:
			count--
			t.results[p.request] = SlotResult{Err: slotRecord.Delete(ctx, t.store, p.slot)}
		}
	}
}

func (t *slotTaker) fail(requests []int, err error) {
	for _, i := range requests {
		t.results[i].Err = err
	}
}
