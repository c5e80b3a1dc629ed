package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/law"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                      "0s",
		1234 * time.Millisecond:           "1.2s",
		59999 * time.Millisecond:          "59s",
		5*time.Minute + 30*time.Second:    "5m30s",
		time.Hour + 1499*time.Millisecond: "60m",
		4*time.Hour + 20*time.Minute:      "4h20m",
		50 * time.Hour:                    "2d2h",
	} {
		assert.Equal(t, want, span(d))
	}
}

func TestWhenIsRelativeButForWide(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	c := &cli{output: "table"}
	assert.Equal(t, []string{"-", "5m ago", "in 3h"}, []string{c.when(time.Time{}, now), c.when(now.Add(-5*time.Minute), now), c.when(now.Add(3*time.Hour), now)})
	c.output = "wide"
	assert.Equal(t, "2026-01-01T11:55:00Z", c.when(now.Add(-5*time.Minute), now))
}

func TestCleanIsHarmlessAndKeepsText(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		harmless := true
		for _, r := range s {
			harmless = harmless && unicode.IsGraphic(r)
		}
		got := escapeControl(s)
		for _, r := range got {
			if !unicode.IsGraphic(r) {
				t.Fatalf("%q holds %U", got, r)
			}
		}
		if harmless && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
	assert.Equal(t, `a\x1b]0;x\a b\nc\u202ed`, escapeControl("a\x1b]0;x\x07 b\nc\u202ed"))
}

func TestYAML(t *testing.T) {
	got, err := toYAML([]byte("{\"z\":[],\"b\":[1,2.50,{\"c\":null}],\"a\":\"x\u009b2J\u202ey\\n\",\"t\":\"2026-01-31T12:00:00Z\",\"u\":true,\"v\":\"true\",\"é\":{}}\n"))
	require.NoError(t, err)
	assert.Equal(t, `a: "x\x9B2J\U0000202Ey\n"
b:
- 1
- 2.50
- c: null
t: "2026-01-31T12:00:00Z"
u: true
v: "true"
z: []
é: {}
`, string(got))
	_, err = toYAML([]byte("{} {}"))
	require.Error(t, err)
}

// FuzzYAML: what a terminal is given is harmless, and the YAML means what the JSON meant.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{
		"{\"a\u202e\":\"\u009b\x7f\u2028\U000e0001\ufeff\"}", `{"a":["\u0085 b","- c","#","1","null","~","0x1f","a: b","\\"]}`, `"\u001b[2J"`,
		`[1e3,-0.0,12345678901234567890,true,null,"\n","  x\n y"]`, "{\"\u200b\":{\"\u200b\":null},\"\":\"\ue000\"}", "\"\xff\"",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := toYAML(text)
		if err != nil {
			return
		}
		for _, r := range string(got) {
			require.True(t, r == '\n' || unicode.IsGraphic(r), "%U in %q", r, got)
		}
		var want, is any
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		require.NoError(t, dec.Decode(&want))
		var doc yaml.Node
		require.NoError(t, yaml.Unmarshal(got, &doc), "%q", got)
		require.Len(t, doc.Content, 1)
		is = meaning(t, doc.Content[0])
		require.Equal(t, want, is, "%q", got)
	})
}

// meaning is what YAML says, as JSON would.
func meaning(t *testing.T, n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			key, ok := meaning(t, n.Content[i]).(string)
			require.True(t, ok, "a key that is no text")
			m[key] = meaning(t, n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, meaning(t, item))
		}
		return list
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return n.Value == "true"
	case "!!int", "!!float":
		return json.Number(n.Value)
	}
	require.Equal(t, "!!str", n.ShortTag(), n.Value)
	return n.Value
}

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
	for _, answer := range []any{&d.StatusIs, &d.ExplainIs, &d.PlanIs, &d.CoversIs, &d.BMCsAre, &d.LookIs, &d.History, &d.Frames, &d.Result, &d.DryRun, &d.NamesAre, &d.EventsAre} {
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
	dir := shortDir(t)
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
			"status", "status -w", "explain n-1", "plan", "timeline n-1", "timeline r-1", "history", "history n-1", "status n-1", "check-config", "events",
			"fence n-1 --reason x --yes", "fence n-1 --reason x --dry-run", "fence n-1 --reason x --yes --wait", "unfence n-1 --reason x --wait",
			"hold n-1 --reason x", "release n-1 --reason x", "abort r-1 --reason x --wait", "retry r-1 --reason x",
			"confirm-off n-1 --reason x --yes", "confirm-off n-1 --reason x --dry-run",
			"bmc list", "bmc test n-1", "bmc audit", "bmc audit n-1", "bmc enroll n-1 --reason x --yes", "bmc unfreeze n-1 --reason x",
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
	for _, of := range []named{nodes, machines, clusters, checks, openRuns, allRuns} {
		names, _ := c.complete(t.Context(), []named{of}, "")
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

func TestJSONIsEscapedAndMeansTheSame(t *testing.T) {
	socket := hostileDaemon(t, false)
	var out, errs bytes.Buffer
	run(t.Context(), []string{"--socket", socket, "-o", "json", "status"}, os.Stdin, &out, &errs)
	var st wire.Status
	require.NoError(t, json.Unmarshal(out.Bytes(), &st))
	assert.Equal(t, hostile, st.PausedReason)
	assert.Contains(t, out.String(), `\u009b2J\u001b[31m\u202e\u2066\u200b\u2028\u007f\nend`)
}

// TestTimelineSVG: the bar of a step begins and ends when the step did, inside the picture, and no text becomes markup.
func TestTimelineSVG(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	run := wire.RunRecord{
		ID: "r-1", Cluster: "prod", Node: "<n>&\x1b[2J", Result: wire.ResultRunning, Started: start,
		Steps: []wire.StepRecord{
			{Step: "PowerOff", Attempt: 1, Started: start, Ended: at(20)},
			{Step: "DeleteNode", Attempt: 1, Started: at(20), Ended: at(20), Course: []string{"</text><script>"}},
			{Step: "PowerOn", Attempt: 2, Started: at(20)},
		},
	}
	var out bytes.Buffer
	require.NoError(t, writeSVG(&out, []wire.RunRecord{run, run}, at(40)))
	type bar struct{ x, width int }
	var bars []bar
	var texts []string
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch v := token.(type) {
		case xml.StartElement:
			require.Contains(t, []string{"svg", "title", "style", "text", "rect"}, v.Name.Local)
			if v.Name.Local == "rect" {
				var b bar
				for _, a := range v.Attr {
					switch n, _ := strconv.Atoi(a.Value); a.Name.Local {
					case "x":
						b.x = n
					case "width":
						b.width = n
					}
				}
				bars = append(bars, b)
			}
		case xml.CharData:
			texts = append(texts, string(v))
		}
	}
	middle := (svgLeft + svgRight) / 2
	one := []bar{{svgLeft, middle - svgLeft}, {middle, 2}, {middle, svgRight - middle}}
	assert.Equal(t, append(one, one...), bars)
	for _, want := range []string{"2 runs", "3/6 PowerOn (2)", "</text><script>", "20s"} {
		assert.Contains(t, texts, want)
	}
}
