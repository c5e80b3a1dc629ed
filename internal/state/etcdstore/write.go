package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/state"
)

// fencingToken is the condition of a write under a claim: the owner's key exists and was
// created at this epoch. The zero value is no condition.
type fencingToken struct {
	key   string // the owner's key in etcd
	epoch int64  // the create revision of that key
}

// Put implements state.Store.
func (s *store) Put(ctx context.Context, r state.Record) (uint64, error) {
	return s.putWithToken(ctx, fencingToken{}, r)
}

// Delete implements state.Store.
func (s *store) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	return s.deleteWithToken(ctx, fencingToken{}, kind, key, version)
}

// putWithToken is Put under the condition of a token.
func (s *store) putWithToken(ctx context.Context, t fencingToken, r state.Record) (uint64, error) {
	if err := state.CheckKey(r.Kind, r.Key); err != nil {
		return 0, err
	}
	version, err := s.put(ctx, t, r)
	if err != nil {
		return 0, fmt.Errorf("put %s: %w", state.RecordName(r.Kind, r.Key), err)
	}
	return version, nil
}

func (s *store) put(ctx context.Context, t fencingToken, r state.Record) (uint64, error) {
	if err := state.CheckKind(r.Kind); err != nil {
		return 0, err
	}
	if len(r.Data) > state.MaxData {
		return 0, fmt.Errorf("%d bytes are more than %d", len(r.Data), state.MaxData)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.newNonce()
	if err != nil {
		return 0, err
	}
	value, parts := pack(n, r.Data)
	keys, err := s.putParts(ctx, r, n, parts)
	if err != nil {
		return 0, err
	}
	w := write{
		kind: r.Kind, key: s.kindPrefix(r.Kind) + r.Key, version: r.Version, nonce: n, token: t, parts: keys,
		ops: append(s.partsOps(r, n, keys), clientv3.OpPut(s.kindPrefix(r.Kind)+r.Key, string(value))),
	}
	return s.write(ctx, w)
}

// deleteWithToken is Delete under the condition of a token.
func (s *store) deleteWithToken(ctx context.Context, t fencingToken, kind state.Kind, key string, version uint64) error {
	err := state.CheckKind(kind)
	if err == nil {
		w := write{kind: kind, key: s.kindPrefix(kind) + key, version: version, token: t, deletes: true, ops: []clientv3.Op{
			clientv3.OpDelete(s.kindPrefix(kind) + key),
			clientv3.OpDelete(s.allPartsPrefix(kind, key), clientv3.WithPrefix()),
		}}
		_, err = s.write(ctx, w)
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", state.RecordName(kind, key), err)
	}
	return nil
}

// write is one compare-and-set.
type write struct {
	kind    state.Kind
	key     string // the record's key in etcd
	version uint64 // the version that must be stored; 0: the record must not exist
	nonce   nonce
	deletes bool
	token   fencingToken
	parts   []string // keys that must exist
	ops     []clientv3.Op
}

// write carries out w exactly once, in one or more attempts. An attempt without an answer is
// repeated with the same nonce and the same comparison. So only one attempt can succeed, and
// the stored nonce shows that one did.
func (s *store) write(ctx context.Context, w write) (version uint64, err error) {
	if w.version > math.MaxInt64 {
		return 0, state.ErrConflict
	}
	unanswered := false // an earlier attempt may have been carried out
	base := w.version
	err = s.retry(ctx, func(ctx context.Context) error {
		for {
			resp, err := s.commit(ctx, w, base)
			if err != nil {
				unanswered = true
				return err
			}
			if resp.Succeeded {
				version = uint64(resp.Header.Revision)
				return nil
			}
			stored, err := w.explainFailure(resp, base)
			switch {
			case stored != nil && nonceOf(stored.Value) == w.nonce && !w.deletes:
				version = uint64(stored.ModRevision)
				return nil
			case w.deletes && unanswered && errors.Is(err, state.ErrNotFound):
				return nil
			case errors.Is(err, state.ErrConflict) && stored != nil && s.uncertain.contains(w, stored):
				base = uint64(stored.ModRevision)
				continue
			}
			return final(err)
		}
	})
	if err == nil && !w.deletes {
		s.uncertain.forgetRecord(w.key)
	}
	if err != nil && isRetryable(err) && unanswered {
		s.uncertain.add(w)
		s.watchers.signalUncertain() // nobody in this process knows what is stored
	}
	return version, err
}

// commit makes one attempt. It compares the stored version with base, not with w.version.
func (s *store) commit(ctx context.Context, w write, base uint64) (*clientv3.TxnResponse, error) {
	wanted := clientv3.Compare(clientv3.ModRevision(w.key), "=", int64(base))
	if w.deletes && base == 0 {
		wanted = clientv3.Compare(clientv3.ModRevision(w.key), "<", 0) // no record has version 0
	}
	// An older fenced that still runs must not write to a store with a newer schema. // I20
	compares := []clientv3.Cmp{wanted, clientv3.Compare(clientv3.Value(s.schemaKey()), "=", strconv.Itoa(state.Schema))}
	for _, part := range w.parts {
		compares = append(compares, clientv3.Compare(clientv3.CreateRevision(part), ">", 0))
	}
	owner := s.schemaKey() // any key; without a token the value is ignored
	if w.token.key != "" {
		owner = w.token.key
		compares = append(compares, clientv3.Compare(clientv3.CreateRevision(owner), "=", w.token.epoch)) // I19
	}
	return s.client.Txn(ctx).If(compares...).Then(w.ops...).
		Else(clientv3.OpGet(w.key), clientv3.OpGet(s.schemaKey()), clientv3.OpGet(owner)).Commit()
}

// explainFailure returns the error of a commit whose comparison failed, and the stored value
// of the record. The value is nil if there is no record.
func (w write) explainFailure(resp *clientv3.TxnResponse, base uint64) (*mvccpb.KeyValue, error) {
	found := func(i int) *mvccpb.KeyValue {
		if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) == 1 {
			return kvs[0]
		}
		return nil
	}
	stored, schema, owner := found(0), found(1), found(2)
	switch {
	case schema == nil:
		return stored, errors.New("the key of the schema is missing: somebody emptied the store")
	case checkSchema(schema.Value) != nil:
		return stored, checkSchema(schema.Value)
	case w.token.key != "" && (owner == nil || owner.CreateRevision != w.token.epoch):
		return stored, state.ErrNotOwner
	case stored == nil && w.deletes:
		return nil, state.ErrNotFound
	case stored == nil && base != 0:
		return nil, state.ErrConflict
	case stored != nil && base == 0 && !w.deletes:
		return stored, state.ErrExists
	case stored != nil && uint64(stored.ModRevision) != base:
		return stored, state.ErrConflict
	}
	return stored, errPartsGone
}

// claimStore is the store of a claim. Each write also compares the epoch: if two instances
// believe that they own a cluster, only one of them can write. // I19
type claimStore struct {
	*store
	token fencingToken
}

// Put implements state.Store.
func (c claimStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	return c.putWithToken(ctx, c.token, r)
}

// Delete implements state.Store.
func (c claimStore) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	return c.deleteWithToken(ctx, c.token, kind, key, version)
}

// Close implements state.Store. It does nothing: the shared store stays open.
func (c claimStore) Close() error { return nil }

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
