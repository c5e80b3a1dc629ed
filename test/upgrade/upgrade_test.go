// Package upgrade_test keeps what is stored readable: testdata holds one record of each kind, with every field set, in a
// state file, and one entry of the audit log. golden_test.go says what they mean.
package upgrade_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/statetest"
	_ "github.com/fenced/fenced/test/oneproc" // the audit log is written in virtual time
)

var update = flag.Bool("update", false, "write testdata anew; testdata/README.md says when")

// The files in testdata.
const (
	stateFile   = "testdata/state.db.gz"
	recordsFile = "testdata/records.txt" // the records of the state file, for people
	auditFile   = "testdata/audit.log"
)

// A record that is stored is read with the same meaning, field by field, and saved again as it was: no key and no value
// is lost, so a version that has no new field reads it after a downgrade. A new field fails here until golden has it.
func TestStoredRecordsKeepTheirMeaning(t *testing.T) {
	assert.Empty(t, unset("", reflect.ValueOf(golden)), "no golden record has it: add it, and write testdata anew")
	if *update {
		writeState(t)
	}
	s, err := boltstore.Open(unpacked(t))
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	require.NoError(t, state.CheckComplete(t.Context(), s))
	id, err := state.ID(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, storeID, id)
	want, err := os.ReadFile(recordsFile)
	require.NoError(t, err)
	assert.Equal(t, string(want), text(t, s))
	read := load(t, s)
	save(t, s, read)
	assert.Equal(t, string(want), text(t, s), "saved again")
	assert.Equal(t, golden, unversioned(read))
}

// The audit log is read for ever: its chain is intact, each entry means the same, and a new one follows it.
func TestStoredAuditLogIsContinued(t *testing.T) {
	if *update {
		require.NoError(t, errors.Join(os.RemoveAll(auditFile), os.RemoveAll(auditFile+".head")))
		synctest.Test(t, func(t *testing.T) { appendEntry(t, auditFile) })
	}
	old, err := os.ReadFile(auditFile)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(path, old, 0o600))
	remembered, err := os.ReadFile(auditFile + ".head")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".head", remembered, 0o600))
	appendEntry(t, path)
	head, err := audit.ParseHead(strings.TrimSpace(string(remembered)))
	require.NoError(t, err)
	_, err = audit.Verify(path, head)
	require.NoError(t, err)
	both, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(both, old), "the old entries stand as they were written")
	var entries []audit.Entry
	_, err = audit.Walk(path, func(l audit.Line) error {
		entries = append(entries, l.Entry)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, entries, 2*len(goldenEntries))
	assert.Equal(t, goldenEntries, entries[:len(goldenEntries)])
	assert.Empty(t, unset("", reflect.ValueOf(goldenEntries[1])))
}

// appendEntry opens the audit log, which records that, and appends the golden entry.
func appendEntry(t *testing.T, path string) {
	log, err := audit.Open(path, audit.Options{Origin: *goldenEntries[0].Origin})
	require.NoError(t, err)
	entry := goldenEntries[1]
	_, err = log.Append(t.Context(), entry)
	require.NoError(t, err)
	_, err = log.Export()
	require.NoError(t, errors.Join(err, log.Close()))
}

// unpacked is a copy of the state file.
func unpacked(t *testing.T) string {
	packed, err := os.Open(stateFile)
	require.NoError(t, err)
	defer func() { assert.NoError(t, packed.Close()) }()
	z, err := gzip.NewReader(packed)
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "state.db")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// writeState writes the golden records into a new state file.
func writeState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := boltstore.Open(path)
	require.NoError(t, err)
	id, err := s.Get(t.Context(), state.KindMeta, "store-id")
	require.NoError(t, err)
	id.Data = []byte(storeID)
	_, err = s.Put(t.Context(), id)
	require.NoError(t, err)
	save(t, s, golden)
	require.NoError(t, os.WriteFile(recordsFile, []byte(text(t, s)), 0o644))
	require.NoError(t, s.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(data)
	require.NoError(t, errors.Join(err, z.Close(), os.WriteFile(stateFile, packed.Bytes(), 0o644)))
}

// text shows every record of a store: kind, key and data.
func text(t *testing.T, s state.Store) string {
	var b strings.Builder
	for _, r := range statetest.Records(t, s) {
		var data bytes.Buffer
		require.NoError(t, json.Indent(&data, r.Data, "", "  "))
		fmt.Fprintf(&b, "%s %q\n%s\n", r.Kind, r.Key, data.String())
	}
	return b.String()
}

// load reads the records of all kinds.
func load(t *testing.T, s state.Store) (r records) {
	ctx := t.Context()
	r.Runs = list(t, s, state.LoadRuns)
	r.Backups = list(t, s, func(ctx context.Context, s state.Store) ([]state.Backup, error) {
		return state.Backups(ctx, s, r.Runs[0].ID)
	})
	r.Clusters = list(t, s, statetest.LoadClusters)
	r.Pins = list(t, s, state.LoadPins)
	r.Freezes = list(t, s, statetest.LoadFreezes)
	r.Holds = list(t, s, statetest.LoadHolds)
	r.Slots = list(t, s, state.LoadSlots)
	r.Asked = list(t, s, state.LoadAsked)
	var err error
	r.Refused, err = state.LoadRefusedAccounts(ctx, s, golden.Refused.Instance)
	require.NoError(t, err)
	return r
}

func list[T any](t *testing.T, s state.Store, load func(context.Context, state.Store) ([]T, error)) []T {
	all, err := load(t.Context(), s)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

// save writes each record. A backup and a slot that are there stay as they are.
func save(t *testing.T, s state.Store, r records) {
	ctx := t.Context()
	saved := func(_ any, err error) { require.NoError(t, err) }
	for _, each := range r.Runs {
		saved(state.SaveRun(ctx, s, each))
	}
	if there, err := state.Backups(ctx, s, r.Runs[0].ID); len(there) == 0 {
		require.NoError(t, err)
		for _, each := range r.Backups {
			require.NoError(t, state.SaveBackup(ctx, s, each))
		}
	}
	for _, each := range r.Clusters {
		saved(statetest.SaveCluster(ctx, s, each))
	}
	for _, each := range r.Pins {
		saved(state.SavePin(ctx, s, each))
	}
	for _, each := range r.Freezes {
		saved(statetest.SaveFreeze(ctx, s, each))
	}
	for _, each := range r.Holds {
		saved(statetest.SaveHold(ctx, s, each))
	}
	for _, each := range r.Slots {
		saved(statetest.TakeSlot(ctx, s, len(r.Slots), each))
	}
	for _, each := range r.Asked {
		saved(state.SaveAsked(ctx, s, each))
	}
	saved(state.SaveRefusedAccounts(ctx, s, r.Refused))
}

// unversioned are the records without what only the store they came from gives them.
func unversioned(r records) records {
	for i := range r.Runs {
		r.Runs[i].Version = 0
	}
	for i := range r.Clusters {
		r.Clusters[i].Version = 0
	}
	for i := range r.Pins {
		r.Pins[i].Version = 0
	}
	for i := range r.Freezes {
		r.Freezes[i].Version = 0
	}
	for i := range r.Holds {
		r.Holds[i].Version = 0
	}
	for i := range r.Slots {
		r.Slots[i].Version, r.Slots[i].Key = 0, ""
	}
	for i := range r.Asked {
		r.Asked[i].Version, r.Asked[i].Key = 0, ""
	}
	r.Refused.Version = 0
	return r
}

// unset lists the stored fields that are empty in a value. In a list a field is empty if it is empty in every element.
func unset(path string, v reflect.Value) (empty []string) {
	switch {
	case v.IsZero():
		return []string{path}
	case v.Kind() == reflect.Pointer:
		return unset(path, v.Elem())
	case v.Type() == reflect.TypeFor[time.Time](), v.Type() == reflect.TypeFor[[]byte]():
		return nil
	case v.Kind() == reflect.Slice:
		count := map[string]int{}
		for i := range v.Len() {
			for _, field := range unset(path+"[]", v.Index(i)) {
				if count[field]++; count[field] == v.Len() {
					empty = append(empty, field)
				}
			}
		}
		return empty
	case v.Kind() != reflect.Struct:
		return nil
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
			empty = append(empty, unset(path+"."+f.Name, v.Field(i))...)
		}
	}
	return empty
}
