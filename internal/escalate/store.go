package escalate

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// askedPrefix begins the keys of the records of what other remediators were asked. They are of
// KindMeta, so that a store of this schema can hold them. The key names also the target, as it was
// at first: so a record that cannot be read still says on what nobody may act.
const askedPrefix = "asked "

// askedKey is "asked CLUSTER ID NODE NAMESPACE MACHINE", with - for what there is none of.
func askedKey(r *Record) string {
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
	if full := key(t.Machine); len(full) <= state.MaxKey || t.Node == "" {
		return full
	}
	return key("") // its Node names the target, too
}

// askedOf is what a key says of its record.
func askedOf(key string) (r Record, err error) {
	fields := strings.Split(strings.TrimPrefix(key, askedPrefix), " ")
	if len(fields) != 5 {
		return r, fmt.Errorf("%s does not name a target", state.RecordName(state.KindMeta, key))
	}
	for i, f := range fields {
		if fields[i], err = url.QueryUnescape(f); err != nil {
			return r, fmt.Errorf("%s: %w", state.RecordName(state.KindMeta, key), err)
		}
		if strings.ContainsFunc(fields[i], func(c rune) bool { return !unicode.IsPrint(c) }) { // it is shown to people
			return r, fmt.Errorf("%s: %q is no name", state.RecordName(state.KindMeta, key), fields[i])
		}
		if f == "-" {
			fields[i] = ""
		}
	}
	r = Record{ID: fields[1], Key: key, Target: remediate.Target{Cluster: fields[0], Node: fields[2], Machine: fields[4]}}
	if r.Target.Machine != "" {
		r.Target.Namespace = fields[3]
	}
	if r.ID == "" || r.Target.Cluster == "" || len(r.Target.Names()) == 0 {
		return r, fmt.Errorf("%s does not name a target", state.RecordName(state.KindMeta, key))
	}
	return r, nil
}

var askedRecord = state.RecordType[Record]{
	Kind: state.KindMeta, Key: func(r Record) string { return askedKey(&r) }, Version: func(r *Record) *uint64 { return &r.Version },
	Name: func(r Record) string {
		return "what another remediator was asked about " + strings.Join(r.Target.Names(), ", ")
	},
	Under: func(r *Record, key string) error { // the target may have become another since
		named, err := askedOf(key)
		if err == nil && (r.ID != named.ID || r.Target.Cluster != named.Target.Cluster) {
			err = fmt.Errorf("it holds the record of %q in cluster %q", r.ID, r.Target.Cluster)
		}
		r.Key = key
		return err
	},
}

// Save writes the record durably and returns it with its new version. An object is made only
// after that. For the errors see Store.Put. // I19
func Save(ctx context.Context, s state.Store, r Record) (Record, error) {
	if r.ID == "" || r.Target.Cluster == "" || r.Unreadable != "" {
		return r, errors.New("save what another remediator was asked: the record has no ID or no cluster, or was not read")
	}
	keyed := r
	keyed.Key = askedKey(&r)
	saved, err := askedRecord.Save(ctx, s, keyed)
	if err != nil {
		return r, err
	}
	return saved, nil
}

// Load returns all records of what other remediators were asked. One that cannot be read says
// so in Unreadable, and has the ID and the target of its key. The error (ErrUnreadable) names each
// record whose key names no target. If the store cannot be listed, it returns none. // I20
func Load(ctx context.Context, s state.Store) ([]Record, error) {
	return state.DecodeAll(ctx, s, state.KindMeta, func(rec state.Record) (Record, error) {
		if !strings.HasPrefix(rec.Key, askedPrefix) {
			return Record{}, state.ErrSetAside
		}
		named, err := askedOf(rec.Key)
		if err != nil {
			return named, err
		}
		r, err := askedRecord.Decode(rec)
		if err != nil {
			r, r.Version, r.Unreadable = named, rec.Version, err.Error()
		}
		return r, nil
	})
}

// remove deletes a record. For the errors see Store.Delete.
func remove(ctx context.Context, s state.Store, r Record) error {
	return askedRecord.Delete(ctx, s, r)
}
