package etcdstore

import (
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/fenced/fenced/internal/state"
)

// uncertainWrites are changes of runs for which etcd gave no answer before the call ended.
// etcd may still carry them out. The worker of the run was told that nothing was saved, so it
// has the version before the change, and would forever be refused because of its own write.
// Therefore a write under that version may replace such a change.
//
// This is correct only for a record with one writer. So it is not done for other kinds, nor
// for records that are created: another goroutine of this process may have read the change
// and rely on it.
type uncertainWrites struct {
	mu    sync.Mutex
	byKey map[string]uncertainWrite // by the record's key in etcd
}

// uncertainWrite are the uncertain writes of one record under one version and one token.
type uncertainWrite struct {
	version uint64 // the version that the caller has
	nonces  []nonce
	token   fencingToken
}

// maxUncertain is the number of nonces that are kept for one record. A write that is older
// than so many calls is no longer carried out.
const maxUncertain = 16

func (u *uncertainWrites) add(w write) {
	if w.kind != state.KindRun || w.version == 0 || w.deletes {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byKey == nil {
		u.byKey = map[string]uncertainWrite{}
	}
	one := u.byKey[w.key]
	if one.version != w.version || one.token != w.token {
		one = uncertainWrite{version: w.version, token: w.token}
	}
	if len(one.nonces) == maxUncertain {
		one.nonces = one.nonces[1:]
	}
	one.nonces = append(one.nonces, w.nonce)
	u.byKey[w.key] = one
}

// contains returns whether the stored value comes from an uncertain write under the version
// of w.
func (u *uncertainWrites) contains(w write, stored *mvccpb.KeyValue) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	one, ok := u.byKey[w.key]
	return ok && one.version == w.version && slices.Contains(one.nonces, nonceOf(stored.Value))
}

// forgetToken removes the writes under a claim that has ended. etcd no longer carries them
// out, and the next owner reads the records again.
func (u *uncertainWrites) forgetToken(t fencingToken) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.byKey, func(_ string, one uncertainWrite) bool { return one.token == t })
}

// forgetRecord removes the writes of a record after a write that etcd confirmed.
func (u *uncertainWrites) forgetRecord(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.byKey, key)
}
