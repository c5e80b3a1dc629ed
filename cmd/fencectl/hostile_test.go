package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
)

// hostile is what a BMC, a cluster's object or a daemon that was taken over may say: it
// clears a screen by C1, colours it by C0, and turns the rest of the line around.
const hostile = "evil\u009b2J\x1b[31m\u202e\u2066\u200b\u2028\x7f\nend"

// poison puts the text into all that can hold a text, one of each list.
func poison(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Bool:
		v.SetBool(true) // gates pass
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		poison(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		poison(v.Index(0))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				poison(v.Field(i))
			}
		}
	}
}

// hostileDaemon answers with nothing but such text, or with errors of such text.
func hostileDaemon(t *testing.T, fails bool) (socket string) {
	t.Helper()
	var d scripted
	for _, answer := range []any{&d.StatusIs, &d.ExplainIs, &d.PlanIs, &d.CoversIs, &d.BMCsAre, &d.LookIs, &d.History, &d.Frames, &d.Result, &d.DryRun, &d.NamesAre} {
		poison(reflect.ValueOf(answer).Elem())
	}
	d.History[0].ID, d.History[0].Node, d.Frames[0].ID, d.Result.Run = "r-1", "n-1", "r-1", "r-1" // by these it is asked
	d.DryRun.Unchanged = false                                                                    // arm shows its plan
	if fails {
		poison(reflect.ValueOf(&d.Error.Error).Elem())
		d.Error.Status = http.StatusUnprocessableEntity
	}
	fixture, err := json.Marshal(&d)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "fencectl") // whose path fits a socket
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	socket = filepath.Join(dir, "s")
	stop, err := startDaemon(fixture, socket, filepath.Join(dir, "orders"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, stop()) })
	return socket
}

// TestOutputIsHarmless: whatever the daemon answers, no verb prints in any form what a
// terminal obeys or an eye misreads.
func TestOutputIsHarmless(t *testing.T) {
	objects := filepath.Join(t.TempDir(), "objects.json")
	node := `{"apiVersion":"machine.openshift.io/v1beta1","kind":"MachineHealthCheck","metadata":{"name":"evil\u202e\u009b","namespace":"x"},"spec":{}}`
	require.NoError(t, os.WriteFile(objects, []byte(node), 0o600))
	in, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer in.Close()
	for _, fails := range []bool{false, true} {
		socket := hostileDaemon(t, fails)
		for _, verb := range []string{
			"status", "status -w", "explain n-1", "plan", "timeline n-1", "timeline r-1", "history", "check-config",
			"fence n-1 --reason x --yes", "fence n-1 --reason x --dry-run", "fence n-1 --reason x --yes --wait", "unfence n-1 --reason x --wait",
			"hold n-1 --reason x", "release n-1 --reason x", "abort r-1 --reason x --wait", "retry r-1 --reason x",
			"confirm-off n-1 --reason x --yes", "confirm-off n-1 --reason x --dry-run",
			"bmc list", "bmc test n-1", "bmc audit", "bmc audit n-1", "bmc enroll n-1 --reason x --yes", "bmc release n-1 --reason x",
			"pause --reason x", "resume --reason x", "arm --reason x --yes", "disarm --reason x", "simulate --objects " + objects,
			"export " + filepath.Join(t.TempDir(), "no", "dir"), "hold EVIL --reason x", "hold n-1 --reason EVIL", "EVIL", "status EVIL", "status --EVIL",
		} {
			for _, form := range []string{"table", "wide", "json", "yaml"} {
				ctx, cancel := context.WithCancel(t.Context())
				if verb == "status -w" {
					cancel() // shown once
				}
				args := append([]string{"--socket", socket, "-o", form}, strings.Split(verb, " ")...)
				for i := range args {
					args[i] = strings.ReplaceAll(args[i], "EVIL", hostile)
				}
				var out, errs bytes.Buffer
				assert.NotEqual(t, exitUnreachable, run(ctx, args, in, &out, &errs), "%v", args)
				cancel()
				assertHarmless(t, verb+" -o "+form, out.String()+errs.String())
			}
		}
	}
}

// TestCompletedNamesAreHarmless: a shell prints them.
func TestCompletedNamesAreHarmless(t *testing.T) {
	c := &cli{socket: hostileDaemon(t, false)}
	for _, of := range []named{nodes, machines, clusters, checks, openRuns, nodesAndRuns} {
		names, _ := c.complete(t.Context(), of, "")
		assertHarmless(t, "completion", strings.Join(names, ""))
		assert.NotContains(t, strings.Join(names, ""), "\n")
	}
}

// assertHarmless wants what was printed to be there, and all of it to be seen.
func assertHarmless(t *testing.T, what, printed string) {
	t.Helper()
	assert.NotEmpty(t, printed, what)
	for _, r := range printed {
		if r != '\n' && !unicode.IsGraphic(r) {
			t.Errorf("%s prints %U: %q", what, r, printed)
			return
		}
	}
}

// TestAuditOutputIsHarmless: the file may have been written by somebody else.
func TestAuditOutputIsHarmless(t *testing.T) {
	var l audit.Line
	poison(reflect.ValueOf(&l.Entry).Elem())
	var err error
	l.Raw, err = json.Marshal(l.Entry)
	require.NoError(t, err)
	for _, form := range []string{"table", "json", "yaml"} {
		var out bytes.Buffer
		require.NoError(t, (&cli{out: &out, output: form}).printEntry(l))
		assertHarmless(t, "audit show -o "+form, out.String())
		assert.Contains(t, strings.ToLower(out.String()), "202e", "it is told all the same")
	}
}

// TestJSONIsEscapedAndMeansTheSame.
func TestJSONIsEscapedAndMeansTheSame(t *testing.T) {
	socket := hostileDaemon(t, false)
	var out, errs bytes.Buffer
	run(t.Context(), []string{"--socket", socket, "-o", "json", "status"}, os.Stdin, &out, &errs)
	var st api.Status
	require.NoError(t, json.Unmarshal(out.Bytes(), &st))
	assert.Equal(t, hostile, st.PausedReason)
	assert.Contains(t, out.String(), `\u009b2J\u001b[31m\u202e\u2066\u200b\u2028\u007f\nend`)
}
