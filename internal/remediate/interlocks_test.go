package remediate

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/must"
)

var update = flag.Bool("update", false, "rewrite the table in six-steps.md and the traces in testdata")

// TestInterlockOrder pins the precedence: who changes it decides anew under which reason a
// run ends when two interlocks bind at once.
func TestInterlockOrder(t *testing.T) {
	var names []string
	for _, i := range interlocks {
		names = append(names, i.name)
	}
	assert.Equal(t, []string{
		"unfence or abort ordered",
		"paused, or node held",
		"unfence or abort ordered",
		"object replaced",
		"another machine's BMC",
		"another remediator",
		"another machine's BMC",
		"recovered",
		"power-off forbidden",
		"Lease too long",
		"target changed",
		"recovered",
		"no longer asked for",
		"quorum lost",
		"target changed",
	}, names)
}

// stageScenes are a run in each stage that would go on, with the look that belongs to it.
var stageScenes = [stages]struct {
	column string // of the table in six-steps.md
	in     Step
	change func(r *Run, s *Observation)
}{
	stageUntouched:    {"1, untouched", PowerOff, fresh},
	stageLaterAttempt: {"1, later attempt", PowerOff, again},
	stageSwitchingOff: {"1, switching off", PowerOff, func(_ *Run, s *Observation) { on(s) }},
	stageNoEffect:     {"1, no effect yet", PowerOff, func(_ *Run, s *Observation) { on(s); s.OffAccepted = false }},
	stageConfirmed:    {"1, confirmed off", PowerOff, confirmedFor(minute)},
	stageIsolating:    {"2, proven off", DeleteNode, func(*Run, *Observation) {}},
	stageIsolatingConfirmed: {"2, confirmed off", DeleteNode, func(r *Run, s *Observation) {
		confirmedFor(minute)(r, s)
		r.Proof = ProofHuman
	}},
	stageDeletingMachine: {"6, `DeleteMachine`", Reprovision, func(r *Run, _ *Observation) { r.Strategy = DeleteMachine }},
	stageReprovisioning:  {"6, after attempts", Reprovision, func(*Run, *Observation) {}},
	stageHeld:            {"Held", Held, func(r *Run, _ *Observation) { retry(r) }},
}

// facts make each interlock bind.
var facts = map[string]func(r *Run, s *Observation){
	"unfence or abort ordered": func(r *Run, _ *Observation) { unfence(r) },
	"paused, or node held":     func(_ *Run, s *Observation) { s.Paused = true },
	"object replaced": func(_ *Run, s *Observation) {
		s.Node.Exists, s.Node.BootID, s.Node.SystemUUID = Yes, cmp.Or(s.Node.BootID, "b9"), "of another machine"
	},
	"another machine's BMC": func(_ *Run, s *Observation) { s.Identity = No },
	"another remediator":    func(_ *Run, s *Observation) { s.Contested = Yes },
	"recovered":             func(_ *Run, s *Observation) { s.Justified = No },
	"power-off forbidden":   func(_ *Run, s *Observation) { s.PowerForbidden = "frozen" },
	"Lease too long":        func(_ *Run, s *Observation) { s.Lease.Duration = times.LongestLease + sec },
	"target changed":        func(_ *Run, s *Observation) { s.Node.UID = "u9" },
	"no longer asked for":   func(_ *Run, s *Observation) { s.Withdrawn, s.WithdrawnWhy = Yes, "the check is gone" },
	"quorum lost":           func(r *Run, s *Observation) { r.ControlPlane, s.Quorum = true, No },
}

// atStage asks Next about a stage with facts of the table.
func atStage(at stage, names ...string) (Run, Action) {
	since := 0 * sec
	if at == stageConfirmed {
		since = minute // the level had its time to answer
	}
	r, s := begin(stageScenes[at].in, since)
	stageScenes[at].change(&r, &s)
	if at == stageDeletingMachine || at == stageConfirmed || at == stageNoEffect || at == stageIsolatingConfirmed {
		r.ControlPlane, s.Quorum = true, Yes
		r.Limits.ReplaceControlPlane = true
	}
	for _, name := range names {
		facts[name](&r, &s)
	}
	r, a, _ := Next(r, s, noon)
	return r, a
}

// TestInterlocksBind: each cell of the table is what Next does.
func TestInterlocksBind(t *testing.T) {
	cells := 0
	for at := range stages {
		in, free := stageScenes[at].in, func() Run { r, _ := atStage(at); return r }()
		_, goesOn := atStage(at)
		for _, i := range interlocks {
			if i.at[at] == proceed {
				continue
			}
			cells++
			name := stageScenes[at].column + ": " + i.name
			r, a := atStage(at, i.name)
			assert.Equal(t, Nothing, a, name)
			code := reason.Code("")
			if i.why != nil {
				code, _ = i.why(Run{}, Observation{})
			}
			switch i.at[at] {
			case wait:
				assert.Equal(t, in, r.Step, name)
				assert.NotEqual(t, Nothing, goesOn, "%s: it would go on", name)
				continue
			case refuse:
				assert.Equal(t, Held, r.Step, name)
				assert.Equal(t, PowerOff, free.Step, "%s: it would begin again", name)
				continue
			case restore:
				assert.Nil(t, r.Unfence, name)
				continue
			case drop:
				want := map[stage]Step{stageUntouched: Aborted, stageConfirmed: Held}[at] // a confirmed host is left off
				assert.Equal(t, want, r.Step, name)
			case abandons:
				if at == stageIsolatingConfirmed {
					assert.Equal(t, Held, r.Step, name)
					break
				}
				assert.Equal(t, PowerOn, r.Step, name)
				assert.Equal(t, Aborted, r.AbandonTo, name)
			case holds, rests:
				assert.Equal(t, Held, r.Step, name)
			case finishes:
				assert.Equal(t, Aborted, r.Step, name)
			}
			assert.Equal(t, code, r.Reason, name)
			assert.NotEqual(t, code, free.Reason, name)
		}
	}
	assert.Equal(t, 64, cells, "each cell was asked")
}

// TestFirstInterlockDecides: of two that bind at one stage the row above decides.
func TestFirstInterlockDecides(t *testing.T) {
	pairs := 0
	for at := range stages {
		for i, first := range interlocks {
			for _, second := range interlocks[i+1:] {
				if first.at[at] == proceed || second.at[at] == proceed {
					continue
				}
				pairs++
				alone, _ := atStage(at, first.name)
				both, a := atStage(at, first.name, second.name)
				name := stageScenes[at].column + ": " + first.name + " above " + second.name
				assert.Equal(t, Nothing, a, name)
				assert.Equal(t, alone.Step, both.Step, name)
				assert.Equal(t, alone.Reason, both.Reason, name)
				if first.at[at] == restore {
					assert.Nil(t, both.Unfence, name)
				}
			}
		}
	}
	assert.Greater(t, pairs, 80)
}

const (
	tableBegins = "<!-- made by go test ./internal/remediate -update -->\n"
	tableEnds   = "<!-- end -->"
)

// TestInterlockTable: the table of six-steps.md is that of the code.
func TestInterlockTable(t *testing.T) {
	const path = "../../docs/six-steps.md"
	data := must.Do(os.ReadFile(path))(t)
	before, rest, ok := strings.Cut(string(data), tableBegins)
	require.True(t, ok, "the table was not found")
	table, after, ok := strings.Cut(rest, tableEnds)
	require.True(t, ok, "the end of the table was not found")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+tableBegins+interlockTable()+tableEnds+after), 0o644))
		return
	}
	assert.Equal(t, interlockTable(), table, "go test ./internal/remediate -update")
}

func interlockTable() string {
	words := [...]string{proceed: "", wait: "wait", refuse: "refuse", drop: "drop", abandons: "back", holds: "hold", finishes: "end", rests: "rest", restore: "order"}
	var b strings.Builder
	b.WriteString("| | Interlock | Reason |")
	for _, s := range stageScenes {
		b.WriteString(" " + s.column + " |")
	}
	b.WriteString("\n|" + strings.Repeat("---|", 3+len(stageScenes)) + "\n")
	for n, i := range interlocks {
		code := "`" + reason.Unfenced + "`, `" + reason.Aborted + "`"
		if i.why != nil {
			said, _ := i.why(Run{}, Observation{})
			code = "`" + said + "`"
		}
		fmt.Fprintf(&b, "| %d | %s | %s |", n+1, i.name, code)
		for _, e := range i.at {
			b.WriteString(strings.TrimRight(" "+words[e], " ") + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestPausedSaysWhy(t *testing.T) {
	r, s := begin(DeleteNode, sec)
	s.Paused, s.PausedWhy = true, "held by ann: disks"
	got, _, _ := Next(r, s, noon)
	assert.Contains(t, got.Note, "held by ann: disks")
}

// reasonArgument is where a function of this package takes a reason code.
var reasonArgument = map[string]int{"stop": 1, "abandon": 1, "dropAttempt": 1, "finish": 2, "giveUpOnLevel": 2, "powerReason": 1}

// TestReasonsAreConstants: a reason code is stored and documented, so it is written once,
// in package reason. Everywhere else it is the constant.
func TestReasonsAreConstants(t *testing.T) {
	set := token.NewFileSet()
	files := product(t, ".", set)
	var codes []string
	for _, file := range product(t, "../reason", set) {
		codes = append(codes, stringLiterals(file)...)
	}
	code := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	codes = slices.DeleteFunc(codes, func(s string) bool { return !code.MatchString(s) })
	require.Greater(t, len(codes), 30, "the codes were not found")
	for _, kind := range []string{"run.go", "observation.go"} { // steps and actions have the same form
		for _, name := range stringLiterals(files[kind]) {
			codes = slices.DeleteFunc(codes, func(code string) bool { return code == name })
		}
	}
	calls := map[string]int{}
	for name, file := range files {
		for _, s := range stringLiterals(file) {
			assert.NotContains(t, codes, s, "%s: a raw reason code; use the constant", name)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			id, ok := call.Fun.(*ast.Ident)
			if !ok {
				return true
			}
			if i, ok := reasonArgument[id.Name]; ok {
				calls[id.Name]++
				assert.Empty(t, stringLiterals(call.Args[i]), "%s: a raw reason code; use a constant of package reason", set.Position(call.Pos()))
			}
			return true
		})
	}
	for name := range reasonArgument {
		assert.Positive(t, calls[name], "nobody calls %s: take it out of this test", name)
	}
}

// product are the parsed files of a package without its tests.
func product(t *testing.T, dir string, set *token.FileSet) map[string]*ast.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string]*ast.File{}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			files[e.Name()], err = parser.ParseFile(set, filepath.Join(dir, e.Name()), nil, 0)
			require.NoError(t, err)
		}
	}
	return files
}

// stringLiterals are the strings below a node that are not empty, imports apart.
func stringLiterals(n ast.Node) (found []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && s != "" {
				found = append(found, s)
			}
		}
		return true
	})
	return found
}
