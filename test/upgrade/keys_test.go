package upgrade_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// keysFile lists what a version can store, also where no record of the story has it.
const keysFile = "keys.txt"

// storedTypes are those that are written to disk, by what they are called there.
var storedTypes = map[string]any{
	"run": remediate.Run{}, "backup": []state.Backup{}, "cluster": state.Cluster{}, "pin": state.Pin{}, "freeze": state.Freeze{},
	"hold": state.Hold{}, "slot": state.Slot{}, "refusals": state.RefusedAccounts{}, "audit": audit.Entry{},
}

// keys lists every JSON key of the stored types with the kind of its value, one to a line.
func keys() string {
	var lines []string
	for name, value := range storedTypes {
		lines = append(lines, shape(name, reflect.TypeOf(value))...)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// shape is the part of keys that one type makes.
func shape(path string, of reflect.Type) (lines []string) {
	switch {
	case of.Kind() == reflect.Pointer:
		return shape(path, of.Elem())
	case of == reflect.TypeFor[time.Time]():
		return []string{path + " time"}
	case of == reflect.TypeFor[[]byte]():
		return []string{path + " base64"}
	case of.Kind() == reflect.Slice:
		return shape(path+"[]", of.Elem())
	case of.Kind() == reflect.Map:
		return shape(path+"{}", of.Elem())
	case of.Kind() != reflect.Struct:
		return []string{path + " " + of.Kind().String()}
	}
	for i := range of.NumField() {
		f := of.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() && name != "-" {
			lines = append(lines, shape(path+"."+name, f.Type)...)
		}
	}
	return lines
}

// Whatever the version before could store has the same key and the same kind today. A new
// key may be added. One that is renamed or changed needs a migration, and a line in
// CHANGELOG.md.
func TestKeysOfTheVersionBefore(t *testing.T) {
	old, err := os.ReadFile(filepath.Join("testdata", keysFile))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(old), "\n"), "\n")
	require.Greater(t, len(lines), 150)
	present := strings.Split(keys(), "\n")
	assert.Empty(t, slices.DeleteFunc(lines, func(line string) bool { return slices.Contains(present, line) }), "stored by the version before, and unknown today")
}

// generic is any JSON, as whoever knows no type of ours reads it.
func generic(t *testing.T, data []byte) (v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(data, &v), "%s", data)
	return v
}
