package etcdstore

import (
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/fenced/fenced/internal/state"
)

// uncertainWrites are the changes of runs that were given up without an answer. etcd may still
// carry them out; the worker, who was told that nothing was saved, has the version before
// and would be refused for ever by what is his own. So a change under that version is
// taken as one of what stands there.
//
// That is right only where a record has one writer. Of other kinds, and of records that
// are created, another in this process may have read what came through, and count on it.
type uncertainWrites struct {
	mu  sync.Mutex
	all map[string]doubt // by key
}

type doubt struct {
	version uint64 // that the caller has
	nonces  []nonce
	under   fencingToken // no write of an earlier one comes through
}

// maxDoubts of one record are remembered: a proposal does not outlive so many calls.
const maxDoubts = 16

func (d *uncertainWrites) add(w write) {
	if w.kind != state.KindRun || w.version == 0 || w.deletes {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[string]doubt{}
	}
	one := d.all[w.key]
	if one.version != w.version || one.under != w.reign {
		one = doubt{version: w.version, under: w.reign}
	}
	if len(one.nonces) == maxDoubts {
		one.nonces = one.nonces[1:]
	}
	one.nonces = append(one.nonces, w.nonce)
	d.all[w.key] = one
}

// has says whether head is a change that was given up, under the version of w.
func (d *uncertainWrites) has(w write, head *mvccpb.KeyValue) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, ok := d.all[w.key]
	return ok && one.version == w.version && slices.Contains(one.nonces, nonceOf(head.Value))
}

// over forgets what was given up under a claim that has ended: etcd carries it out no
// more, and the next owner of the records reads them anew.
func (d *uncertainWrites) over(r fencingToken) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.all, func(_ string, one doubt) bool { return one.under == r })
}

// settled forgets a record that was written with an answer.
func (d *uncertainWrites) settled(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, key)
}
