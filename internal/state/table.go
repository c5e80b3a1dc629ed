package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// RecordType describes how values of one type are stored as records of one kind.
type RecordType[T any] struct {
	Kind    Kind
	Key     func(T) string
	Version func(*T) *uint64
	Name    func(T) string // for error messages
	// Stored returns what of a value is stored, by pointer; nil: the whole value.
	Stored func(*T) any
	// Under gives a value that was read the key of its record, where the key does not follow from
	// what is stored. It refuses the record of something else. nil: the key does.
	Under func(v *T, key string) error
	// Check refuses what must not be stored, and must not be used if it was; nil refuses nothing.
	Check func(T) error
	// Lasts reports whether only its own Update may end a record: it stays in force even if
	// the store lacks it, after keys were deleted or an older backup was restored. nil
	// means that none does.
	Lasts func(T) bool
}

// Save writes a value durably and returns it with its new version. After an error it
// returns the value as it was given. For the errors see Store.Put.
func (t RecordType[T]) Save(ctx context.Context, s Store, v T) (T, error) {
	if t.Check != nil {
		if err := t.Check(v); err != nil {
			return v, fmt.Errorf("save %s: %w", t.Name(v), err)
		}
	}
	data, err := encode(t.content(&v))
	if err != nil {
		return v, fmt.Errorf("save %s: %w", t.Name(v), err)
	}
	version, err := s.Put(ctx, Record{Kind: t.Kind, Key: t.Key(v), Version: *t.Version(&v), Data: data})
	if err != nil {
		return v, fmt.Errorf("save %s: %w", t.Name(v), err)
	}
	*t.Version(&v) = version
	return v, nil
}

func (t RecordType[T]) content(v *T) any {
	if t.Stored == nil {
		return v
	}
	return t.Stored(v)
}

// list returns all values that can be read, and an error (ErrUnreadable) that names each
// record that cannot.
func (t RecordType[T]) list(ctx context.Context, s Store) ([]T, error) {
	return DecodeAll(ctx, s, t.Kind, t.Decode)
}

// get returns one value, or ErrNotFound.
func (t RecordType[T]) get(ctx context.Context, s Store, key string) (T, error) {
	r, err := s.Get(ctx, t.Kind, key)
	if err != nil {
		var none T
		return none, err
	}
	return t.Decode(r)
}

// Delete removes a value. For the errors see Store.Delete.
func (t RecordType[T]) Delete(ctx context.Context, s Store, v T) error {
	return s.Delete(ctx, t.Kind, t.Key(v), *t.Version(&v))
}

// Decode returns the value of a record with the version of the record.
func (t RecordType[T]) Decode(r Record) (T, error) {
	var v, none T
	err := decode(r.Data, t.content(&v))
	if err == nil && t.Under != nil {
		err = t.Under(&v, r.Key)
	}
	if err == nil && t.Key(v) != r.Key {
		err = fmt.Errorf("it holds the record of %q", t.Key(v))
	}
	if err == nil && t.Check != nil {
		err = t.Check(v)
	}
	if err != nil {
		return none, fmt.Errorf("read %s: %w", RecordName(t.Kind, r.Key), err)
	}
	*t.Version(&v) = r.Version
	return v, nil
}

// DecodeAll returns every record of a kind that decode accepts, and an error that names
// the others.
func DecodeAll[T any](ctx context.Context, s Store, kind Kind, decode func(Record) (T, error)) ([]T, error) {
	records, err := s.List(ctx, kind)
	if err != nil {
		return nil, err
	}
	return decodeEach(records, decode)
}

func decodeEach[T any](records []Record, decode func(Record) (T, error)) ([]T, error) {
	list := make([]T, 0, len(records))
	var bad []error
	for _, r := range records {
		v, err := decode(r)
		if errors.Is(err, ErrSetAside) {
			continue
		}
		if err != nil {
			bad = append(bad, unreadableError{err})
			continue
		}
		list = append(list, v)
	}
	return list, errors.Join(bad...)
}

// ErrSetAside makes DecodeAll leave out a record.
var ErrSetAside = errors.New("set aside")

// ErrUnreadable marks the error that comes with a list. The list holds all records except
// those that cannot be decoded.
var ErrUnreadable = errors.New("unreadable records")

// unreadableError says why one record cannot be decoded.
type unreadableError struct{ error }

func (unreadableError) Is(target error) bool { return target == ErrUnreadable }

func (u unreadableError) Unwrap() error { return u.error }

// codecVersion is the version of every record that is written. Increase it for a change
// that an older fenced cannot read, or would lose when it saves the record again.
const codecVersion = 1

// envelope is the outer JSON object of every record: {"v":1,"data":...}.
type envelope struct {
	V    int             `json:"v"`
	Data json.RawMessage `json:"data"`
}

func encode(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{V: codecVersion, Data: data})
}

// decode reads a record. It refuses a field that this program does not know, because the
// field would be lost when the record is saved again. A record of a newer version is
// ErrFuture. // I20
func decode(data []byte, value any) error {
	var probe struct {
		V int `json:"v"`
	}
	// Only the version is read at first: the rest of a newer record is unknown.
	if err := json.Unmarshal(data, &probe); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	switch {
	case probe.V > codecVersion:
		return fmt.Errorf("decode version %d, this program knows %d: %w", probe.V, codecVersion, ErrFuture)
	case probe.V < 1:
		return errors.New("decode: the record has no version")
	}
	var e envelope
	if err := decodeStrict(data, &e); err != nil {
		return err
	}
	if len(e.Data) == 0 || string(e.Data) == "null" {
		return errors.New("decode: the record is empty")
	}
	return decodeStrict(e.Data, value)
}

// decodeStrict decodes one JSON value and refuses unknown fields.
func decodeStrict(data []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(value); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode: data follows the record")
	}
	return nil
}

// Table caches the records of one kind. It changes them in the store by compare-and-set,
// so that several instances can share the store. Several goroutines may use a table at the
// same time. It holds no lock while it waits for the store.
type Table[T any] struct {
	record  RecordType[T]
	changed func(T)

	mu    sync.Mutex
	byKey map[string]T
}

// NewTable returns an empty table of Holds, Freezes or Clusters. The table calls changed with each record that is added,
// changed or removed, and holds no lock then: changed may use the table.
func NewTable[T any](record RecordType[T], changed func(T)) *Table[T] {
	return &Table[T]{record: record, changed: changed, byKey: map[string]T{}}
}

// Get returns the cached record under a key. If there is none, v is the zero value.
func (t *Table[T]) Get(key string) (v T, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, known = t.byKey[key]
	return v, known
}

// All returns the cached records in the order of their keys.
func (t *Table[T]) All() []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]T, 0, len(t.byKey))
	for _, key := range slices.Sorted(maps.Keys(t.byKey)) {
		list = append(list, t.byKey[key])
	}
	return list
}

// Any reports whether is is true of a record. It must not call the table.
func (t *Table[T]) Any(is func(T) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, record := range t.byKey {
		if is(record) {
			return true
		}
	}
	return false
}

// Load reads all records from the store. If some cannot be read, it returns an error
// (ErrUnreadable) and keeps every cached record. It also keeps what Update stored while
// Load was reading, and a record that lasts although the store lacks it.
func (t *Table[T]) Load(ctx context.Context, s Store) error {
	t.mu.Lock()
	before := maps.Clone(t.byKey)
	t.mu.Unlock()
	list, err := t.record.list(ctx, s)
	for _, v := range list {
		t.accept(v)
		delete(before, t.record.Key(v))
	}
	if err == nil {
		for _, v := range before {
			if !t.lasts(v) {
				t.remove(v)
			}
		}
	}
	return err
}

func (t *Table[T]) lasts(v T) bool { return t.record.Lasts != nil && t.record.Lasts(v) }

// accept caches a record that is stored, unless the cached one is newer.
func (t *Table[T]) accept(v T) {
	t.mu.Lock()
	key := t.record.Key(v)
	old, known := t.byKey[key]
	newer := !known || *t.record.Version(&v) > *t.record.Version(&old)
	if newer {
		t.byKey[key] = v
	}
	t.mu.Unlock()
	if newer {
		t.changed(v)
	}
}

// remove removes a record from the cache, unless the cached one has another version.
func (t *Table[T]) remove(v T) {
	t.mu.Lock()
	key := t.record.Key(v)
	now, known := t.byKey[key]
	same := known && *t.record.Version(&now) == *t.record.Version(&v)
	if same {
		delete(t.byKey, key)
	}
	t.mu.Unlock()
	if same {
		t.changed(v)
	}
}

// Update changes one record. change gets the cached record and returns the next one, and
// whether to write it. If the stored record turns out to be another one, because another
// instance changed it or because the answer to an earlier write was lost, Update reads it
// and calls change again, up to three times.
//
// Update returns the record as it is stored now. After an error it returns the record that
// it could not store, and the cache holds the record that was read last. For the errors see
// Store.Put.
func (t *Table[T]) Update(ctx context.Context, s Store, key string, change func(old T, known bool) (next T, write bool)) (T, error) {
	const maxConflicts = 3
	for attempt := 0; ; attempt++ {
		old, known := t.Get(key)
		next, write := change(old, known)
		if !write {
			return old, nil
		}
		*t.record.Version(&next) = *t.record.Version(&old)
		saved, err := t.record.Save(ctx, s, next)
		if err == nil {
			t.accept(saved)
			return saved, nil
		}
		if attempt == maxConflicts || !errors.Is(err, ErrConflict) && !errors.Is(err, ErrExists) {
			return next, err
		}
		if reloadErr := t.reload(ctx, s, old, known, key); reloadErr != nil {
			return next, errors.Join(err, reloadErr)
		}
	}
}

// reload reads one record into the cache. old is the cached record, if known.
func (t *Table[T]) reload(ctx context.Context, s Store, old T, known bool, key string) error {
	stored, err := t.record.get(ctx, s, key)
	switch {
	case err == nil && known:
		t.replace(old, stored)
	case err == nil:
		t.accept(stored)
	case !errors.Is(err, ErrNotFound):
		return err
	case known && t.lasts(old):
		gone := old
		*t.record.Version(&gone) = 0 // it is written anew
		t.replace(old, gone)
	case known:
		t.remove(old)
	}
	return nil
}

// replace caches what is stored in the place of a record that is not, unless the cache has
// another one by now. The stored one may be older: after an older backup was restored.
func (t *Table[T]) replace(old, stored T) {
	t.mu.Lock()
	key := t.record.Key(old)
	now, known := t.byKey[key]
	same := known && *t.record.Version(&now) == *t.record.Version(&old)
	if same {
		t.byKey[key] = stored
	}
	t.mu.Unlock()
	if same {
		t.changed(stored)
	} else {
		t.accept(stored)
	}
}

// Delete removes a record from the store and from the cache. It returns ErrConflict if the
// stored record has another version, and nil if there is none.
func (t *Table[T]) Delete(ctx context.Context, s Store, v T) error {
	if err := t.record.Delete(ctx, s, v); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	t.remove(v)
	return nil
}
