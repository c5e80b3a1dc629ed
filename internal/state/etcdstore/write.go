package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/state"
)

// fencingToken is what a write under a claim compares beside the record's version: the
// owner's key was created at this epoch and is there still. The zero value compares
// nothing.
type fencingToken struct {
	key   string
	epoch int64
}

// Put implements state.Store.
func (s *store) Put(ctx context.Context, r state.Record) (uint64, error) {
	return s.putUnder(ctx, fencingToken{}, r)
}

// Delete implements state.Store.
func (s *store) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	return s.deleteUnder(ctx, fencingToken{}, kind, key, version)
}

func (s *store) putUnder(ctx context.Context, t fencingToken, r state.Record) (uint64, error) {
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
		kind: r.Kind, key: s.kindPrefix(r.Kind) + r.Key, version: r.Version, nonce: n, reign: t, parts: keys,
		ops: append(s.keepParts(r, n, keys), clientv3.OpPut(s.kindPrefix(r.Kind)+r.Key, string(value))),
	}
	return s.write(ctx, w)
}

func (s *store) deleteUnder(ctx context.Context, t fencingToken, kind state.Kind, key string, version uint64) error {
	err := state.CheckKind(kind)
	if err == nil {
		w := write{kind: kind, key: s.kindPrefix(kind) + key, version: version, reign: t, deletes: true, ops: []clientv3.Op{
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
	key     string
	version uint64 // what the record must have; 0 = none may be there
	nonce   nonce
	deletes bool
	reign   fencingToken
	parts   []string // must be there
	ops     []clientv3.Op
}

// write carries w out once, however many attempts that takes: an attempt without an
// answer is repeated with the same nonce and the same comparison, so only one of them
// can come through, and the nonce that is found tells that one did.
func (s *store) write(ctx context.Context, w write) (version uint64, err error) {
	if w.version > math.MaxInt64 {
		return 0, state.ErrConflict
	}
	sent := false // an earlier attempt may have come through
	base := w.version
	err = s.try(ctx, func(ctx context.Context) error {
		for {
			resp, err := s.commit(ctx, w, base)
			if err != nil {
				sent = true
				return err
			}
			if resp.Succeeded {
				version = uint64(resp.Header.Revision)
				return nil
			}
			head, err := w.judge(resp, base)
			switch {
			case head != nil && nonceOf(head.Value) == w.nonce && !w.deletes:
				version = uint64(head.ModRevision)
				return nil
			case w.deletes && sent && errors.Is(err, state.ErrNotFound):
				return nil
			case errors.Is(err, state.ErrConflict) && head != nil && s.doubts.has(w, head):
				base = uint64(head.ModRevision)
				continue
			}
			return conclude(err)
		}
	})
	if err == nil && !w.deletes {
		s.doubts.settled(w.key)
	}
	if unanswered := err != nil && passes(err) && sent; unanswered {
		s.doubts.add(w)
		s.watchers.signal() // what is stored is not what anybody here thinks
	}
	return version, err
}

// commit makes one attempt, under base in place of the record's version.
func (s *store) commit(ctx context.Context, w write, base uint64) (*clientv3.TxnResponse, error) {
	wanted := clientv3.Compare(clientv3.ModRevision(w.key), "=", int64(base))
	if w.deletes && base == 0 {
		wanted = clientv3.Compare(clientv3.ModRevision(w.key), "<", 0) // nothing has version 0
	}
	// An older fenced that still runs must not write into what a newer one took over. // I20
	compares := []clientv3.Cmp{wanted, clientv3.Compare(clientv3.Value(s.schemaKey()), "=", strconv.Itoa(state.Schema))}
	for _, part := range w.parts {
		compares = append(compares, clientv3.Compare(clientv3.CreateRevision(part), ">", 0))
	}
	owner := s.schemaKey() // some key; it is not looked at
	if w.reign.key != "" {
		owner = w.reign.key
		compares = append(compares, clientv3.Compare(clientv3.CreateRevision(owner), "=", w.reign.epoch)) // I19
	}
	return s.client.Txn(ctx).If(compares...).Then(w.ops...).
		Else(clientv3.OpGet(w.key), clientv3.OpGet(s.schemaKey()), clientv3.OpGet(owner)).Commit()
}

// judge says why a comparison failed, and what stands under the key.
func (w write) judge(resp *clientv3.TxnResponse, base uint64) (*mvccpb.KeyValue, error) {
	found := func(i int) *mvccpb.KeyValue {
		if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) == 1 {
			return kvs[0]
		}
		return nil
	}
	head, layout, owner := found(0), found(1), found(2)
	switch {
	case layout == nil:
		return head, errors.New("the schema is gone: somebody emptied the store")
	case checkSchema(layout.Value) != nil:
		return head, checkSchema(layout.Value)
	case w.reign.key != "" && (owner == nil || owner.CreateRevision != w.reign.epoch):
		return head, state.ErrNotOwner
	case head == nil && w.deletes:
		return nil, state.ErrNotFound
	case head == nil && base != 0:
		return nil, state.ErrConflict
	case head != nil && base == 0 && !w.deletes:
		return head, state.ErrExists
	case head != nil && uint64(head.ModRevision) != base:
		return head, state.ErrConflict
	}
	return head, errPartsGone
}
