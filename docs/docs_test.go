// Package docs_test keeps the documents true: what they name exists, and what
// exists and an operator can meet is named.
package docs_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// documents reads every Markdown file of the project, by path from here.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "vendor" || d.Name() == "dist"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".md"):
			return nil
		}
		data, err := os.ReadFile(path)
		if within, ok := strings.CutPrefix(path, "../docs/"); ok {
			path = within
		}
		all[path] = string(data)
		return err
	})
	require.NoError(t, err)
	require.Greater(t, len(all), 30, "the documents were not found")
	return all
}

// walk parses every Go file of the project that keep wants, by path from here.
func walk(t *testing.T, keep func(path string) bool, visit func(path string, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "vendor") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || !keep(path) {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err == nil {
			visit(path, f)
		}
		return err
	})
	require.NoError(t, err)
}

// TestNamedTestsExist: a guard that was renamed away guards nothing.
func TestNamedTestsExist(t *testing.T) {
	exists := testNames(t)
	named := 0
	for file, text := range documents(t) {
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(text, -1) {
			named++
			assert.True(t, exists[name], "%s names %s, which is no test", file, name)
		}
	}
	require.Greater(t, named, 50, "the names of tests were not found")
}

// TestNamedCasesExist: each row of the decision table is backed by its cases.
func TestNamedCasesExist(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\|.*\|([^|]*)\|$`)
	named := 0
	for _, m := range row.FindAllStringSubmatch(documents(t)["policy.md"], -1) {
		for _, name := range regexp.MustCompile("`([a-z0-9]+-[a-z0-9-]+)`").FindAllStringSubmatch(m[1], -1) {
			named++
			assert.FileExists(t, "../internal/policy/testdata/"+name[1]+".txtar")
		}
	}
	require.Greater(t, named, 50, "the names of cases were not found")
}

// TestEveryInvariantHasARow: each is guarded, none will be.
func TestEveryInvariantHasARow(t *testing.T) {
	text := documents(t)["safety.md"]
	assert.NotContains(t, strings.ToLower(text), "not yet", "an invariant without a guard is none")
	var want []string
	for i := range 27 {
		want = append(want, "I"+strconv.Itoa(i+1))
	}
	for _, name := range append(want, "L1", "L2", "L3", "L4", "L5") {
		row := regexp.MustCompile(`(?m)^\| ` + name + ` \|.*$`).FindString(text)
		require.NotEmpty(t, row, "safety.md has no row %s", name)
		assert.Contains(t, row, "`Test", "safety.md: nothing guards %s", name)
	}
}

// TestEveryDecisionIsInTheIndex: by its number and title, with a status and a date.
func TestEveryDecisionIsInTheIndex(t *testing.T) {
	all := documents(t)
	index, found := all["adr/README.md"], 0
	for file, text := range all {
		name, ok := strings.CutPrefix(file, "adr/")
		if !ok || name == "README.md" {
			continue
		}
		found++
		number, title, _ := strings.Cut(strings.TrimPrefix(strings.SplitN(text, "\n", 2)[0], "# "), ". ")
		row := regexp.MustCompile(`(?m)^\| ` + number + ` \| ` + regexp.QuoteMeta("["+title+"]("+name+")") + ` \| \S.* \| \d{4}-\d\d-\d\d \|$`)
		assert.Regexp(t, row, index, "docs/adr/README.md has no row of %s", file)
	}
	require.Greater(t, found, 20, "the decisions were not found")
}

// TestLinksResolve: every relative link leads to a file, and to a heading
// where it names one.
func TestLinksResolve(t *testing.T) {
	all := documents(t)
	found := 0
	for file, text := range all {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(fencedBlock.ReplaceAllString(text, ""), -1) {
			path, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			found++
			target := filepath.Join(filepath.Dir(file), path)
			if !assert.FileExists(t, target, "%s links to %s", file, m[1]) || heading == "" {
				continue
			}
			text, ok := all[strings.TrimPrefix(target, "../docs/")]
			require.True(t, ok, "%s links to a heading of %s, which is no document", file, target)
			assert.Contains(t, anchors(text), heading, "%s links to %s", file, m[1])
		}
	}
	require.Greater(t, found, 100, "the links were not found")
}

// anchors are those that a forge gives the headings.
func anchors(text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(fencedBlock.ReplaceAllString(text, ""), -1) {
		words := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(words, " ", "-"))
	}
	return list
}

// TestTablesHaveWholeRows: each row of a table has as many cells as its head. What shows a page says nothing of cells that are missing.
func TestTablesHaveWholeRows(t *testing.T) {
	rows := 0
	for file, text := range documents(t) {
		head := 0
		for line := range strings.SplitSeq(text, "\n") {
			bars := strings.Count(line, "|") - strings.Count(line, `\|`)
			switch {
			case !strings.HasPrefix(line, "|"):
				bars = 0
			case head != 0:
				rows++
				assert.Equal(t, head, bars, "%s: %s", file, line)
				continue
			}
			head = bars
		}
	}
	require.Greater(t, rows, 500, "the tables were not found")
}

// TestManPageTellsTheRoles: the role of every verb of orders stands in the page.
func TestManPageTellsTheRoles(t *testing.T) {
	page := must.Do(os.ReadFile("man/fencectl.8"))(t)
	want := map[string][]string{}
	for _, v := range wire.Verbs {
		if v.Name == wire.Reload {
			continue // fenced --reload gives it
		}
		role := v.Need.String()
		want[role] = append(want[role], strings.Replace(string(v.Name), "/", " ", 1))
	}
	require.Len(t, want, 2, "the roles were not found")
	for role, verbs := range want {
		line := regexp.MustCompile(`(?m)^\.It ` + role + `\n\.Cm (.*?),?$`).FindStringSubmatch(string(page))
		require.NotNil(t, line, "no line of %s", role)
		assert.ElementsMatch(t, verbs, strings.Split(strings.TrimSuffix(line[1], " "), " , "), role)
	}
}

// inPlace are words that people replace, each with what can stand there.
var inPlace = strings.NewReplacer(
	"NAMESPACE/NAME", "openshift-machine-api/worker-3", "NODE", "worker-3", "RUN", "mi42k0z1-4f9a1c", "RECORD", "mi42k0z1-4f9a1c", "FILE", "state.ndjson", "CLUSTER", "prod", "SEQ:HASH", "4711:5a0c5ef7d4f1f2c3b0a19283746556473829100abcdef0123456789abcdef012",
)

// asks are the orders that ask a person for a name.
var asks = regexp.MustCompile(`^(fence|arm|confirm-off|bmc enroll) `)

// wrongUsage is the exit status of a command line that the program does not understand.
const wrongUsage = 64

// TestDocumentedCommandsAreUnderstood runs each line of fencectl that stands in a block of a document,
// without a daemon: whatever else is missing, it is no wrong usage.
func TestDocumentedCommandsAreUnderstood(t *testing.T) {
	fencectlVerbs(t)
	program := must.Do(fencectl())(t)
	seen := map[string]bool{}
	for file, text := range documents(t) {
		for _, line := range blockLines(text) {
			for _, m := range regexp.MustCompile(`(?:^|[;&|]) *(?:sudo )?fencectl ([^#;&|>]*)`).FindAllStringSubmatch(line, -1) {
				command := inPlace.Replace(strings.TrimSpace(m[1]))
				if asks.MatchString(command) && !strings.Contains(command, "--dry-run") && !strings.Contains(command, "--yes") {
					command += " --yes" // there is no terminal to ask at
				}
				if seen[command] || strings.Contains(command, "...") && !strings.Contains(command, "--reason ...") {
					continue // a hash that is cut, or a list
				}
				seen[command] = true
				assert.NotEqual(t, wrongUsage, status(t, program, words(strings.ReplaceAll(command, "--reason ...", "--reason x"))), "%s: fencectl %s", file, command)
			}
		}
	}
	require.Greater(t, len(seen), 25, "the commands were not found")
	require.Equal(t, wrongUsage, status(t, program, []string{"hold"}), "wrong usage is noticed")
}

// blockLines are the lines of all blocks of code of a document.
func blockLines(text string) (lines []string) {
	for _, block := range fencedBlock.FindAllString(text, -1) {
		lines = append(lines, strings.Split(block, "\n")...)
	}
	for _, line := range listBlock.FindAllString(fencedBlock.ReplaceAllString(text, ""), -1) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// words splits a command line as a shell does, which has both kinds of quotes.
func words(line string) (all []string) {
	for _, m := range regexp.MustCompile(`"([^"]*)"|'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		all = append(all, m[1]+m[2]+m[3])
	}
	return all
}

// status runs fencectl where there is nothing: no daemon, no other program, no file.
func status(t *testing.T, program string, args []string) int {
	t.Helper()
	cmd := exec.Command(program, append([]string{"--socket", "/nonexistent/fenced.sock"}, args...)...)
	cmd.Dir, cmd.Env = t.TempDir(), []string{"PATH=" + t.TempDir(), "HOME=" + os.TempDir()}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	require.NoError(t, err, "fencectl %v", args)
	return 0
}

var (
	fencedBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	inlineCode  = regexp.MustCompile("`([^`]+)`")
	listBlock   = regexp.MustCompile(`(?m)^ {4,}\S.*$`)
)

// snippets are the pieces of code in a Markdown text: each line of its blocks, and what
// stands in back quotes.
func snippets(text string) (all []string) {
	for _, block := range fencedBlock.FindAllString(text, -1) {
		all = append(all, strings.Split(block, "\n")...)
	}
	text = fencedBlock.ReplaceAllString(text, "")
	for _, line := range listBlock.FindAllString(text, -1) {
		all = append(all, strings.TrimSpace(line))
	}
	for _, m := range inlineCode.FindAllStringSubmatch(listBlock.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.Join(strings.Fields(m[1]), " "))
	}
	return all
}

// commandLines splits a snippet where a shell ends a command, and cuts comments off.
func commandLines(snippet string) (all [][]string) {
	snippet, _, _ = strings.Cut(snippet+" ", " # ")
	for _, part := range regexp.MustCompile(`&&|\|\||[|;>]`).Split(snippet, -1) {
		words := strings.Fields(part)
		if len(words) > 1 && words[0] == "sudo" && flagOf(words[1]) == "" {
			words = words[1:]
		}
		if len(words) > 0 {
			all = append(all, words)
		}
	}
	return all
}

// entries are the items of a man page's lists: for each `.It` line the lines up to the next.
func entries(page string) map[string][]string {
	found := map[string][]string{}
	item := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, ".It "):
			item = strings.TrimPrefix(line, ".It ")
			found[item] = nil
		case strings.HasPrefix(line, ".Sh "), strings.HasPrefix(line, ".Ss "):
			item = ""
		case item != "":
			found[item] = append(found[item], line)
		}
	}
	return found
}

// arguments are the words that a macro of mdoc marks in a line, like Ic or Fl.
func arguments(macro string, line string) (found []string) {
	marked := false
	for _, word := range strings.Fields(strings.TrimPrefix(line, ".")) {
		switch {
		case regexp.MustCompile(`^[A-Z][a-z]$`).MatchString(word):
			marked = word == macro
		case marked && regexp.MustCompile(`^[\w-]`).MatchString(word):
			found = append(found, word)
		}
	}
	return found
}

// TestNamedPathsExist: a recipe that sends somebody to a file which was moved helps
// nobody.
func TestNamedPathsExist(t *testing.T) {
	named := 0
	for _, m := range regexp.MustCompile("`([^` ]+)`").FindAllStringSubmatch(documents(t)["../CONTRIBUTING.md"], -1) {
		path := m[1]
		top, _, nested := strings.Cut(path, "/")
		if !nested && !strings.HasSuffix(path, ".md") && path != "go.mod" {
			continue
		}
		if nested && !slices.Contains([]string{"cmd", "configs", "docs", "internal", "packaging", "test"}, top) {
			continue
		}
		named++
		found := must.Do(filepath.Glob("../" + path))(t)
		assert.NotEmpty(t, found, "CONTRIBUTING.md names %s", path)
	}
	require.Greater(t, named, 40, "the paths were not found")
}

// TestNamedTestsOfTheMakefileExist: go test runs nothing for a name that no test has, and says nothing.
func TestNamedTestsOfTheMakefileExist(t *testing.T) {
	all := slices.Collect(maps.Keys(testNames(t)))
	text := must.Do(os.ReadFile("../Makefile"))(t)
	named := 0
	for _, m := range regexp.MustCompile(`-run '(.*?)'`).FindAllStringSubmatch(string(text), -1) {
		pattern := strings.ReplaceAll(m[1], "$$", "$")
		if pattern == "^$" { // no test at all
			continue
		}
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		require.NoError(t, err, pattern)
		whole := strings.HasSuffix(pattern, "$")
		for _, name := range alternatives(t, parsed) {
			named++
			assert.True(t, slices.ContainsFunc(all, func(test string) bool { return test == name || !whole && strings.HasPrefix(test, name) }),
				"the Makefile runs %s, which is no test", name)
		}
	}
	require.Greater(t, named, 10, "the names of tests were not found")
	for name := range strings.FieldsSeq(string(must.Do(os.ReadFile("../internal/engine/testdata/race.txt"))(t))) {
		assert.Contains(t, all, name, "the Makefile runs it with the race detector")
	}
	heavy := regexp.MustCompile(`(?m)^HEAVY := \^\((.*)\)\$\$\nHEAVYIN := (.*)$`).FindStringSubmatch(string(text))
	require.NotNil(t, heavy, "the tests without the race detector were not found")
	places := map[string][]string{}
	walk(t, isTestFile, func(path string, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				places[fn.Name.Name] = append(places[fn.Name.Name], "."+strings.TrimPrefix(filepath.Dir(path), ".."))
			}
		}
	})
	for _, name := range strings.Split(heavy[1], "|") {
		require.Len(t, places[name], 1, "the Makefile leaves out %s wherever a test is called so", name)
		assert.Contains(t, strings.Fields(heavy[2]), places[name][0], "the Makefile runs %s nowhere", name)
	}
	looks := regexp.MustCompile(`(?m)^LOOKS := \^TestScript\$\$/\^\((.*)\)$`).FindStringSubmatch(string(text))
	require.NotNil(t, looks, "the scripts without the race detector were not found")
	for _, name := range strings.Split(looks[1], "|") {
		assert.NotEmpty(t, must.Do(filepath.Glob("../cmd/fencectl/testdata/script/"+name+"*"))(t), "the Makefile runs the scripts %s, and there are none", name)
	}
}

func testNames(t *testing.T) map[string]bool {
	t.Helper()
	exists := map[string]bool{}
	walk(t, isTestFile, func(_ string, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				exists[fn.Name.Name] = true
			}
		}
	})
	return exists
}

// alternatives are all that a pattern of alternatives matches.
func alternatives(t *testing.T, re *syntax.Regexp) []string {
	t.Helper()
	switch re.Op {
	case syntax.OpBeginText, syntax.OpBeginLine, syntax.OpEndText, syntax.OpEndLine, syntax.OpEmptyMatch:
		return []string{""}
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpCharClass: // what the parser makes of A|B
		var all []string
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				all = append(all, string(r))
			}
		}
		return all
	case syntax.OpCapture:
		return alternatives(t, re.Sub[0])
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			all = append(all, alternatives(t, sub)...)
		}
		return all
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			var longer []string
			for _, begin := range all {
				for _, end := range alternatives(t, sub) {
					longer = append(longer, begin+end)
				}
			}
			all = longer
		}
		return all
	default:
		require.FailNow(t, "a pattern of the Makefile is not a list of names", "%s", re)
		return nil
	}
}
