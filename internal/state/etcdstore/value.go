package etcdstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/state"
)

// maxPart is how much of a record one key holds. etcd refuses requests above 1.5 MiB,
// so a larger record has its data in parts, and the value under its own key says which.
const maxPart = 512 << 10

const maxParts = (state.MaxData + maxPart - 1) / maxPart

// The value under a record's key: a byte for the form, the nonce of the write, and
// then the data, or how many parts and bytes of it there are.
const (
	formWhole = 1
	formParts = 2

	headBytes  = 1 + len(nonce{})
	partsBytes = headBytes + 4 + 4
)

// nonce tells one write from all others, so that a writer who got no answer can see
// whether it was his that came through.
type nonce [16]byte

func (s *store) newNonce() (n nonce, err error) {
	copy(n[:], s.writer[:])
	_, err = rand.Read(n[len(s.writer):])
	return n, err
}

// ours says whether this store wrote a value.
func (s *store) ours(value []byte) bool {
	return len(value) >= headBytes && [8]byte(value[1:]) == s.writer
}

func nonceOf(value []byte) nonce {
	if len(value) < headBytes {
		return nonce{}
	}
	return nonce(value[1:headBytes])
}

// pack gives the value for the record's key, and the parts that stand beside it.
func pack(n nonce, data []byte) (value []byte, parts [][]byte) {
	if len(data) <= maxPart {
		return append(append([]byte{formWhole}, n[:]...), data...), nil
	}
	size := len(data)
	for len(data) > 0 {
		end := min(maxPart, len(data))
		parts, data = append(parts, data[:end]), data[end:]
	}
	value = append([]byte{formParts}, n[:]...)
	value = binary.BigEndian.AppendUint32(value, uint32(len(parts)))
	return binary.BigEndian.AppendUint32(value, uint32(size)), parts
}

// allPartsPrefix is in front of the parts of one record, of all its writes. The key is
// in hexadecimal: as it is, the parts of "a/b" would lie among those of "a".
func (s *store) allPartsPrefix(kind state.Kind, key string) string {
	return s.prefix + "part/" + string(kind) + "/" + hex.EncodeToString([]byte(key)) + "/"
}

func (s *store) partsPrefix(kind state.Kind, key string, n nonce) string {
	return s.allPartsPrefix(kind, key) + hex.EncodeToString(n[:]) + "/"
}

// unpack makes the record of a value, with the parts as they were at the revision at
// which the value was read.
func (s *store) unpack(ctx context.Context, kind state.Kind, kv *mvccpb.KeyValue, revision int64) (state.Record, error) {
	key := string(kv.Key[len(s.kindPrefix(kind)):])
	r := state.Record{Kind: kind, Key: key, Version: uint64(kv.ModRevision)}
	damaged := func(what string) (state.Record, error) {
		return state.Record{}, conclude(fmt.Errorf("%s is damaged: %s", state.RecordName(kind, key), what))
	}
	v := kv.Value
	switch {
	case len(v) >= headBytes && v[0] == formWhole:
		r.Data = append([]byte{}, v[headBytes:]...)
		return r, nil
	case len(v) != partsBytes || v[0] != formParts:
		return damaged(fmt.Sprintf("%d bytes of an unknown form", len(v)))
	}
	count, size := binary.BigEndian.Uint32(v[headBytes:]), binary.BigEndian.Uint32(v[headBytes+4:])
	resp, err := s.client.Get(ctx, s.partsPrefix(kind, key, nonceOf(v)), clientv3.WithPrefix(), clientv3.WithRev(revision), clientv3.WithLimit(maxParts+1))
	if err != nil {
		return state.Record{}, err
	}
	for _, part := range resp.Kvs {
		r.Data = append(r.Data, part.Value...)
	}
	if len(resp.Kvs) != int(count) || len(r.Data) != int(size) {
		return damaged(fmt.Sprintf("%d of %d parts, %d of %d bytes", len(resp.Kvs), count, len(r.Data), size))
	}
	return r, nil
}

// partsLife is how long parts stay to which no record points: etcd itself removes what
// a writer left behind who died before the record was written.
const partsLife = 60 // seconds

// putParts writes the parts and gives their keys. They are on a lease until the
// record's own write takes them off it.
func (s *store) putParts(ctx context.Context, r state.Record, n nonce, parts [][]byte) ([]string, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	var lease clientv3.LeaseID
	err := s.try(ctx, func(ctx context.Context) error {
		granted, err := s.client.Grant(ctx, partsLife)
		if err == nil {
			lease = granted.ID
		}
		return err
	})
	keys := make([]string, len(parts))
	for i, part := range parts {
		keys[i] = fmt.Sprintf("%s%04d", s.partsPrefix(r.Kind, r.Key, n), i)
		if err == nil {
			err = s.try(ctx, func(ctx context.Context) error {
				_, err := s.client.Put(ctx, keys[i], string(part), clientv3.WithLease(lease))
				return err
			})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("write the parts: %w", err)
	}
	return keys, nil
}

// keepParts takes the parts off their lease, and removes those of earlier writes.
func (s *store) keepParts(r state.Record, n nonce, keys []string) []clientv3.Op {
	all := s.allPartsPrefix(r.Kind, r.Key)
	if len(keys) == 0 {
		return []clientv3.Op{clientv3.OpDelete(all, clientv3.WithPrefix())}
	}
	mine := s.partsPrefix(r.Kind, r.Key, n)
	ops := []clientv3.Op{
		clientv3.OpDelete(all, clientv3.WithRange(mine)),
		clientv3.OpDelete(clientv3.GetPrefixRangeEnd(mine), clientv3.WithRange(clientv3.GetPrefixRangeEnd(all))),
	}
	for _, key := range keys {
		ops = append(ops, clientv3.OpPut(key, "", clientv3.WithIgnoreValue()))
	}
	return ops
}

var errPartsGone = errors.New("its parts were removed before it was written; write it again")
