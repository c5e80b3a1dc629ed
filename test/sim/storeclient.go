package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/state"
)

var errStore = errors.New("the store does not answer")

// storeClient is one fenced's access to the store. It fails before a write, or
// after it, so that the result is not known. With a claim it compares the epoch
// at each write. // I19
type storeClient struct {
	inc   *incarnation
	epoch uint64 // 0 = without a claim
}

// isAsked says whether a record is about what another remediator was asked.
func isAsked(r state.Record) bool {
	return r.Kind == state.KindMeta && strings.HasPrefix(r.Key, askedPrefix)
}

// pass delivers one operation to the store.
func (d *storeClient) pass(ctx context.Context, what string, write bool) error {
	if err := d.inc.call(ctx, what); err != nil {
		return err
	}
	w := d.inc.i.w
	var cut, fails bool
	w.do(func() {
		cut = time.Now().Before(d.inc.i.storeCut)
		if fails = write && w.dice.Float64() < w.storeFails(); fails {
			w.fault("store-write-refused", "", "%s of %s", what, d.inc)
		}
	})
	if cut {
		_ = sleep(ctx, 2*time.Second)
		return errStore
	}
	if fails {
		return errStore
	}
	return sleep(ctx, time.Millisecond)
}

// back delivers the result of a write, or loses it.
func (d *storeClient) back(ctx context.Context, what string) error {
	w := d.inc.i.w
	var lost bool
	w.do(func() {
		if lost = w.dice.Float64() < w.storeFails(); lost {
			w.fault("store-answer-lost", "", "%s of %s", what, d.inc)
		}
	})
	if lost {
		return errStore
	}
	return d.inc.call(ctx, what+" answered")
}

// skew is by how much the times of others are ahead for this fenced.
func (d *storeClient) skew() (skew time.Duration) {
	d.inc.i.w.do(func() { skew = d.inc.i.clock.ours })
	return skew
}

// skewOf is by how much the times of a record are ahead for this fenced. Its clock may have
// followed since it wrote the record itself; that changes nothing about these times.
func (d *storeClient) skewOf(r state.Record) (skew time.Duration) {
	d.inc.i.w.do(func() {
		skew = d.inc.i.clock.ours
		if own, wrote := d.inc.stamps[stampKey(r)]; wrote && own.version == r.Version {
			skew = own.skew
		}
	})
	return skew
}

// Get implements state.Store.
func (d *storeClient) Get(ctx context.Context, kind state.Kind, key string) (state.Record, error) {
	if err := d.pass(ctx, "get", false); err != nil {
		return state.Record{}, err
	}
	r, err := d.inc.i.w.store.Get(ctx, kind, key)
	return d.inc.i.w.defect.stored(shiftRecord(r, d.skewOf(r))), err
}

// List implements state.Store.
func (d *storeClient) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	if err := d.pass(ctx, "list", false); err != nil {
		return nil, err
	}
	if kind == state.KindRun && d.inc.i.w.defect.ForgetsRuns {
		return nil, nil
	}
	list, err := correctedStore{d.inc.i.w.store, d.skew()}.List(ctx, kind)
	if d.inc.i.w.defect.ForgetsAsked {
		list = slices.DeleteFunc(list, isAsked)
	}
	for i := range list {
		list[i] = d.inc.i.w.defect.stored(list[i])
	}
	return list, err
}

// Put implements state.Store.
func (d *storeClient) Put(ctx context.Context, r state.Record) (uint64, error) {
	w := d.inc.i.w
	what := "put " + string(r.Kind)
	if err := d.pass(ctx, what, true); err != nil {
		return 0, err
	}
	w.do(func() { w.search("the record "+string(r.Kind)+" "+r.Key, "", string(r.Data)) })
	if r.Kind == state.KindRun && r.Version != 0 && w.defect.StoresNoRuns {
		return r.Version, nil
	}
	if isAsked(r) && w.defect.StoresNoAsked {
		return r.Version + 1, nil
	}
	var version uint64
	skew := d.skew()
	r = shiftRecord(r, -skew)
	err := error(state.ErrNotOwner)
	w.do(func() { // compares the epoch in the same transaction
		if w.owners.holds(d) {
			version, err = w.store.put(ctx, r, w.defect.IgnoresVersions)
		}
	})
	if err != nil {
		return 0, err
	}
	w.do(func() {
		d.inc.stamps[stampKey(r)] = stamp{version, skew}
		w.tellOthers(d.inc)
	})
	if r.Kind == state.KindBackup && w.defect.LosesBackups {
		w.after(time.Second, func() { _ = w.store.Delete(w.ctx, r.Kind, r.Key, version) })
	}
	w.stored(d, r.Kind, r.Key, skew)
	return version, d.back(ctx, what)
}

// Delete implements state.Store.
func (d *storeClient) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	what := "delete " + string(kind)
	if err := d.pass(ctx, what, true); err != nil {
		return err
	}
	w := d.inc.i.w
	err := error(state.ErrNotOwner)
	w.do(func() {
		if w.owners.holds(d) {
			err = w.store.Delete(ctx, kind, key, version)
		}
	})
	if err != nil {
		return err
	}
	w.do(func() { w.tellOthers(d.inc) })
	w.dropped(d, kind, key)
	return d.back(ctx, what)
}

// Watch implements state.Store.
func (d *storeClient) Watch(context.Context) <-chan struct{} {
	if d.inc.i.w.plan.Instances == 1 { // it has locked the store
		return nil
	}
	return d.inc.news
}

// tellOthers signals the other users of the store. An instance that is cut off
// gets the signal later. w.mu is held.
func (w *World) tellOthers(by *incarnation) {
	for _, i := range w.instances {
		if i.cur == nil || i.cur == by {
			continue
		}
		if i.missed = time.Now().Before(i.storeCut); i.missed {
			continue
		}
		i.cur.wake()
	}
}

// wake signals that the store may have changed.
func (c *incarnation) wake() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// Close implements state.Store.
func (d *storeClient) Close() error { return nil }
