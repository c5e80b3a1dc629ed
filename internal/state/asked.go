package state

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/escalate"
)

// askedPrefix begins the keys of the records of what other remediators were asked. They are of
// KindMeta, so that a store of this schema can hold them.
const askedPrefix = "asked "

func askedKey(r escalate.Record) string { return askedPrefix + r.ID }

// SaveAsked writes the record durably and returns it with its new version. An object is made only
// after that. For the errors see Store.Put. // I19
func SaveAsked(ctx context.Context, s Store, r escalate.Record) (escalate.Record, error) {
	if r.ID == "" || r.Target.Cluster == "" {
		return r, errors.New("save what another remediator was asked: the record has no ID or no cluster")
	}
	data, err := encode(r)
	if err == nil {
		var version uint64
		if version, err = s.Put(ctx, Record{Kind: KindMeta, Key: askedKey(r), Version: r.Version, Data: data}); err == nil {
			r.Version = version
			return r, nil
		}
	}
	return r, fmt.Errorf("save what another remediator was asked about %s: %w", r.Target.Node, err)
}

// LoadAsked returns all records of what other remediators were asked, and an error (ErrUnreadable)
// that names each record that cannot be read. If the store cannot be listed, it returns none.
func LoadAsked(ctx context.Context, s Store) ([]escalate.Record, error) {
	records, err := s.List(ctx, KindMeta)
	if err != nil {
		return nil, err
	}
	var list []escalate.Record
	var bad []error
	for _, rec := range records {
		if !strings.HasPrefix(rec.Key, askedPrefix) {
			continue
		}
		var r escalate.Record
		err := decode(rec.Data, &r)
		if err == nil && askedKey(r) != rec.Key {
			err = fmt.Errorf("it holds the record of %q", r.ID)
		}
		if err != nil {
			bad = append(bad, unreadableError{fmt.Errorf("read %s: %w", RecordName(KindMeta, rec.Key), err)})
			continue
		}
		r.Version = rec.Version
		list = append(list, r)
	}
	return list, errors.Join(bad...)
}

// DeleteAsked deletes a record. For the errors see Store.Delete.
func DeleteAsked(ctx context.Context, s Store, r escalate.Record) error {
	return s.Delete(ctx, KindMeta, askedKey(r), r.Version)
}
