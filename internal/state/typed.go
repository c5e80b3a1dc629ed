package state

import (
	"context"
	"fmt"
)

// recordType describes how values of one type are stored as records of one kind.
type recordType[T any] struct {
	kind    Kind
	key     func(T) string
	version func(*T) *uint64
	name    func(T) string // for error messages
	// check refuses what must not be stored; nil refuses nothing.
	check func(T) error
	// lasts reports whether only its own Update may end a record: it stays in force even if
	// the store lacks it, after keys were deleted or an older backup was restored. nil
	// means that none does.
	lasts func(T) bool
}

// save writes a value durably and returns it with its new version. After an error it
// returns the value as it was given. For the errors see Store.Put.
func (t recordType[T]) save(ctx context.Context, s Store, v T) (T, error) {
	if t.check != nil {
		if err := t.check(v); err != nil {
			return v, fmt.Errorf("save %s: %w", t.name(v), err)
		}
	}
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

// list returns all values that can be read, and an error (ErrUnreadable) that names each
// record that cannot.
func (t recordType[T]) list(ctx context.Context, s Store) ([]T, error) {
	return decodeAll(ctx, s, t.kind, t.decode)
}

// get returns one value, or ErrNotFound.
func (t recordType[T]) get(ctx context.Context, s Store, key string) (T, error) {
	r, err := s.Get(ctx, t.kind, key)
	if err != nil {
		var none T
		return none, err
	}
	return t.decode(r)
}

// delete removes a value. For the errors see Store.Delete.
func (t recordType[T]) delete(ctx context.Context, s Store, v T) error {
	return s.Delete(ctx, t.kind, t.key(v), *t.version(&v))
}

// decode returns the value of a record with the version of the record.
func (t recordType[T]) decode(r Record) (T, error) {
	var v, none T
	err := decode(r.Data, &v)
	if err == nil && t.key(v) != r.Key {
		err = fmt.Errorf("it holds the record of %q", t.key(v))
	}
	if err != nil {
		return none, fmt.Errorf("read %s: %w", RecordName(t.kind, r.Key), err)
	}
	*t.version(&v) = r.Version
	return v, nil
}
