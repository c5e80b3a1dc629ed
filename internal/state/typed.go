package state

import (
	"context"
	"fmt"
)

// typed says how values of one type are kept as records of one kind.
type typed[T any] struct {
	kind    Kind
	key     func(T) string
	version func(*T) *uint64
	name    func(T) string // for people
}

// save writes a value durably and gives it with its new version.
func (t typed[T]) save(ctx context.Context, s Store, v T) (T, error) {
	data, err := encode(v)
	if err != nil {
		return v, fmt.Errorf("save %s: %w", t.name(v), err)
	}
	version, err := s.Put(ctx, Record{Kind: t.kind, Key: t.key(v), Version: *t.version(&v), Data: data})
	if err != nil {
		return v, fmt.Errorf("save %s: %w", t.name(v), err)
	}
	*t.version(&v) = version
	return v, nil
}

// list reads all values, beside an error that names each unreadable record.
func (t typed[T]) list(ctx context.Context, s Store) ([]T, error) {
	return load(ctx, s, t.kind, t.decode)
}

// get reads one value; ErrNotFound when there is none.
func (t typed[T]) get(ctx context.Context, s Store, key string) (T, error) {
	r, err := s.Get(ctx, t.kind, key)
	if err != nil {
		var none T
		return none, err
	}
	return t.decode(r)
}

func (t typed[T]) delete(ctx context.Context, s Store, v T) error {
	return s.Delete(ctx, t.kind, t.key(v), *t.version(&v))
}

func (t typed[T]) decode(r Record) (T, error) {
	var v, none T
	err := decode(r.Data, &v)
	if err == nil && t.key(v) != r.Key {
		err = fmt.Errorf("it calls itself %q", t.key(v))
	}
	if err != nil {
		return none, fmt.Errorf("read %s: %w", RecordName(t.kind, r.Key), err)
	}
	*t.version(&v) = r.Version
	return v, nil
}
