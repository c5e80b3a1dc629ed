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

// maxPart is the largest amount of data under one key, in bytes. etcd refuses requests above
// 1.5 MiB. So a larger record is stored in parts under keys of their own, and the value under
// the record's key says which parts.
const maxPart = 512 << 10

const maxParts = (state.MaxData + maxPart - 1) / maxPart

// The value under a record's key is one byte for the form, the nonce of the write, and then
// the data (formWhole), or the number of parts and of bytes (formParts).
const (
	formWhole = 1
	formParts = 2

	headBytes  = 1 + len(nonce{})
	partsBytes = headBytes + 4 + 4
)

// nonce identifies one write. A writer that got no answer can see by the nonce whether its
// own write was carried out.
type nonce [16]byte

func (s *store) newNonce() (n nonce, err error) {
	copy(n[:], s.writerID[:])
	_, err = rand.Read(n[len(s.writerID):])
	return n, err
}

// isOwnWrite returns whether this store wrote the value.
func (s *store) isOwnWrite(value []byte) bool {
	return len(value) >= headBytes && [8]byte(value[1:]) == s.writerID
}

// nonceOf returns the nonce of a value, or the zero nonce if the value is too short.
func nonceOf(value []byte) nonce {
	if len(value) < headBytes {
		return nonce{}
	}
	return nonce(value[1:headBytes])
}

// pack returns the value for the record's key, and the parts if there are any.
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

// allPartsPrefix begins the keys of the parts of one record, from all its writes. The
// record's key is in hexadecimal: otherwise the parts of "a/b" would be among those of "a".
func (s *store) allPartsPrefix(kind state.Kind, key string) string {
	return s.prefix + "part/" + string(kind) + "/" + hex.EncodeToString([]byte(key)) + "/"
}

// partsPrefix begins the keys of the parts of one write.
func (s *store) partsPrefix(kind state.Kind, key string, n nonce) string {
	return s.allPartsPrefix(kind, key) + hex.EncodeToString(n[:]) + "/"
}

// unpack returns the record of a value. It reads the parts at the revision at which the value
// was read.
func (s *store) unpack(ctx context.Context, kind state.Kind, kv *mvccpb.KeyValue, revision int64) (state.Record, error) {
	key := string(kv.Key[len(s.kindPrefix(kind)):])
	r := state.Record{Kind: kind, Key: key, Version: uint64(kv.ModRevision)}
	damaged := func(what string) (state.Record, error) {
		return state.Record{}, final(fmt.Errorf("%s is damaged: %s", state.RecordName(kind, key), what))
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

// partsTTL is how long etcd keeps parts that no record refers to. A writer that dies before
// it writes the record leaves such parts.
const partsTTL = 60 // seconds

// putParts writes the parts and returns their keys. The parts are on a lease until the write
// of the record takes them off it.
func (s *store) putParts(ctx context.Context, r state.Record, n nonce, parts [][]byte) ([]string, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	var lease clientv3.LeaseID
	err := s.retry(ctx, func(ctx context.Context) error {
		granted, err := s.client.Grant(ctx, partsTTL)
		if err == nil {
			lease = granted.ID
		}
		return err
	})
	keys := make([]string, len(parts))
	for i, part := range parts {
		keys[i] = fmt.Sprintf("%s%04d", s.partsPrefix(r.Kind, r.Key, n), i)
		if err == nil {
			err = s.retry(ctx, func(ctx context.Context) error {
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

// partsOps are the operations that take the parts off their lease and remove the parts of
// earlier writes. They belong to the write of the record.
func (s *store) partsOps(r state.Record, n nonce, keys []string) []clientv3.Op {
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

var errPartsGone = errors.New("the parts of the record were removed before the record was written; write it again")
