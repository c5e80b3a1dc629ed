package state

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/remediate"
)

// askedPrefix begins the keys of the records of what other remediators were asked. They are of
// KindMeta, so that a store of this schema can hold them. The key names also the target, as it was
// at first: so a record that cannot be read still says on what nobody may act.
const askedPrefix = "asked "

// askedKey is "asked CLUSTER ID NODE NAMESPACE MACHINE", with - for what there is none of.
func askedKey(r *escalate.Record) string {
	if r.Key != "" {
		return r.Key
	}
	t := r.Target
	key := func(machine string) string {
		fields := []string{t.Cluster, r.ID, t.Node, t.Namespace, machine}
		for i, f := range fields {
			if fields[i] = url.QueryEscape(f); f == "" {
				fields[i] = "-"
			}
		}
		return askedPrefix + strings.Join(fields, " ")
	}
	if full := key(t.Machine); len(full) <= MaxKey || t.Node == "" {
		return full
	}
	return key("") // its Node names the target, too
}

// askedOf is what a key says of its record.
func askedOf(key string) (r escalate.Record, err error) {
	fields := strings.Split(strings.TrimPrefix(key, askedPrefix), " ")
	if len(fields) != 5 {
		return r, fmt.Errorf("%s does not name a target", RecordName(KindMeta, key))
	}
	for i, f := range fields {
		if fields[i], err = url.QueryUnescape(f); err != nil {
			return r, fmt.Errorf("%s: %w", RecordName(KindMeta, key), err)
		}
		if strings.ContainsFunc(fields[i], func(c rune) bool { return !unicode.IsPrint(c) }) { // it is shown to people
			return r, fmt.Errorf("%s: %q is no name", RecordName(KindMeta, key), fields[i])
		}
		if f == "-" {
			fields[i] = ""
		}
	}
	r = escalate.Record{ID: fields[1], Key: key, Target: remediate.Target{Cluster: fields[0], Node: fields[2], Machine: fields[4]}}
	if r.Target.Machine != "" {
		r.Target.Namespace = fields[3]
	}
	if r.ID == "" || r.Target.Cluster == "" || len(r.Target.Names()) == 0 {
		return r, fmt.Errorf("%s does not name a target", RecordName(KindMeta, key))
	}
	return r, nil
}

var askedRecord = recordType[escalate.Record]{
	kind: KindMeta, key: func(r escalate.Record) string { return askedKey(&r) }, version: func(r *escalate.Record) *uint64 { return &r.Version },
	name: func(r escalate.Record) string {
		return "what another remediator was asked about " + strings.Join(r.Target.Names(), ", ")
	},
	under: func(r *escalate.Record, key string) error { // the target may have become another since
		named, err := askedOf(key)
		if err == nil && (r.ID != named.ID || r.Target.Cluster != named.Target.Cluster) {
			err = fmt.Errorf("it holds the record of %q in cluster %q", r.ID, r.Target.Cluster)
		}
		r.Key = key
		return err
	},
}

// SaveAsked writes the record durably and returns it with its new version. An object is made only
// after that. For the errors see Store.Put. // I19
func SaveAsked(ctx context.Context, s Store, r escalate.Record) (escalate.Record, error) {
	if r.ID == "" || r.Target.Cluster == "" || r.Unreadable != "" {
		return r, errors.New("save what another remediator was asked: the record has no ID or no cluster, or was not read")
	}
	keyed := r
	keyed.Key = askedKey(&r)
	saved, err := askedRecord.save(ctx, s, keyed)
	if err != nil {
		return r, err
	}
	return saved, nil
}

// LoadAsked returns all records of what other remediators were asked. One that cannot be read says
// so in Unreadable, and has the ID and the target of its key. The error (ErrUnreadable) names each
// record whose key names no target. If the store cannot be listed, it returns none. // I20
func LoadAsked(ctx context.Context, s Store) ([]escalate.Record, error) {
	return decodeAll(ctx, s, KindMeta, func(rec Record) (escalate.Record, error) {
		if !strings.HasPrefix(rec.Key, askedPrefix) {
			return escalate.Record{}, errSetAside
		}
		named, err := askedOf(rec.Key)
		if err != nil {
			return named, err
		}
		r, err := askedRecord.decode(rec)
		if err != nil {
			r, r.Version, r.Unreadable = named, rec.Version, err.Error()
		}
		return r, nil
	})
}

// DeleteAsked deletes a record. For the errors see Store.Delete.
func DeleteAsked(ctx context.Context, s Store, r escalate.Record) error {
	return askedRecord.delete(ctx, s, r)
}
