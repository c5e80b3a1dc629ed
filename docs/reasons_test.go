package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/report"
	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
)

// TestReasonsAreExplained: a code that an operator can be shown has a row that says what to
// do, and each row is of a code.
func TestReasonsAreExplained(t *testing.T) {
	reasons := reasonConstants(t)
	for _, kind := range literals(t, "../internal/bmc/error.go") {
		reasons = append(reasons, "BMC"+kind)
	}
	require.Greater(t, len(reasons), 110, "the reasons were not found")
	before, _, after := classTable(t) // its rows explain nothing
	tables, _, _ := strings.Cut(before+after, "| Finding | Meaning |")
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| ((?:`\\w+`(?:, )?)+) \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(tables, -1) {
		rows = append(rows, names(m[1])...)
	}
	for _, reason := range reasons {
		assert.Contains(t, rows, reason, "no operator is told what to do")
	}
	for _, row := range rows {
		assert.Contains(t, reasons, row, "reasons.md has a row of no code")
	}
}

// reasonConstants are the constants of type reason.Code, and the codes of the API's errors.
func reasonConstants(t *testing.T) (found []string) {
	t.Helper()
	product := func(path string) bool {
		return strings.HasPrefix(path, "../internal/") && !strings.HasSuffix(path, "_test.go")
	}
	walk(t, product, func(_ string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			lit, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || !isReason(spec.Type) && !strings.HasPrefix(spec.Names[0].Name, "Code") {
				return true
			}
			if s, err := strconv.Unquote(lit.Value); err == nil && s != "" {
				found = append(found, s)
			}
			return true
		})
	})
	return found
}

func isReason(typ ast.Expr) bool {
	switch x := typ.(type) {
	case *ast.Ident:
		return x.Name == "Code"
	case *ast.SelectorExpr:
		return x.Sel.Name == "Code"
	}
	return false
}

// TestGatesAreExplained: each of the daemon's own gates has its row.
func TestGatesAreExplained(t *testing.T) {
	text := documents(t)["policy.md"]
	named := regexp.MustCompile(`\b(?:NewGate|NoneOf)\("(\w+)"|\bGate\{+\s*Name: "(\w+)"`)
	found := 0
	files := must.Do(filepath.Glob("../internal/*/*.go"))(t)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "/policy/") { // what a check has against it is told apart
			continue
		}
		data := must.Do(os.ReadFile(file))(t)
		for _, m := range named.FindAllStringSubmatch(string(data), -1) {
			found++
			assert.Regexp(t, `(?m)^\| (?:\w+, )?`+m[1]+m[2]+`(?:, \w+)? \|`, text)
		}
	}
	require.Greater(t, found, 30, "the gates were not found")
}

// TestFindingsAreExplained: each weakness that `fencectl bmc audit` can show has
// its row, and each row its weakness.
func TestFindingsAreExplained(t *testing.T) {
	codes := literals(t, "../internal/bmc/describe.go")
	require.Greater(t, len(codes), 8, "the findings were not found")
	_, section, _ := strings.Cut(documents(t)["reasons.md"], "| Finding | Meaning |")
	table, _, _ := strings.Cut(section, "\n\n")
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(table, -1) {
		rows = append(rows, m[1])
	}
	assert.ElementsMatch(t, codes, rows)
}

// TestMetricsAreExplained: each metric has a row that says when to worry.
func TestMetricsAreExplained(t *testing.T) {
	text := documents(t)["alerts.md"]
	var found []string
	for _, file := range []string{"metrics.go", "gauges.go"} {
		data := must.Do(os.ReadFile("../cmd/fenced/" + file))(t)
		for _, m := range regexp.MustCompile(`"(fenced_\w+)"`).FindAllStringSubmatch(string(data), -1) {
			found = append(found, m[1])
		}
	}
	require.Greater(t, len(found), 20, "the metrics were not found")
	for _, name := range found {
		assert.Regexp(t, "(?m)^\\|[^|]*`"+name+"`", text)
	}
}

// TestActionsAreExplained: the name of an action, which the journal and the audit log have, does not always say what it does.
func TestActionsAreExplained(t *testing.T) {
	code := string(must.Do(os.ReadFile("../internal/remediate/observation.go"))(t))
	page := string(must.Do(os.ReadFile("alerts.md"))(t))
	_, table, found := strings.Cut(page, "| `FENCED_ACTION` |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	actions := regexp.MustCompile(` Action = "(\w+)"`).FindAllStringSubmatch(code, -1)
	require.NotEmpty(t, actions)
	for _, a := range actions {
		assert.Contains(t, table, "`"+a[1]+"`")
	}
}

// literals are the strings in a file that have the form of a reason code.
func literals(t *testing.T, file string) []string {
	t.Helper()
	f := must.Do(parser.ParseFile(token.NewFileSet(), file, nil, 0))(t)
	code := regexp.MustCompile(`^[A-Z][a-z]+\w+$|^(?:TLS|API)\w*$`)
	var found []string
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && code.MatchString(s) {
				found = append(found, s)
			}
		}
		return true
	})
	return found
}

// nextOf is what fenced does next, for each class.
var nextOf = []struct {
	class reason.Class
	next  string
}{
	{reason.Transient, "evaluates the target again; a run waits, and goes on after a pause that grows"},
	{reason.Mended, "evaluates the target again; a run waits, and goes on once a look does not show the cause any more"},
	{reason.Person, "refuses the target; a run is Held"},
	{"", "nothing: it is a verdict, an end that was wanted, or the answer to an order"},
}

// nextOfCode is what fenced does next where that is more than its class says.
var nextOfCode = map[reason.Code]string{
	"AttemptsExhausted": "the run waits for an hour, later up to a day, and begins one more power cycle. If the Node registers before, it goes on at step 5. After an `abort` it is Held",
	"NodeFinalizer":     "the run waits, and goes on at step 3 as soon as the Node is gone",
	"RestoreFailed":     "the run waits, and goes on at step 3 after `power.retryInterval`",
	"PowerForbidden":    "evaluates the target again; a run waits, and goes on once the owner of the host wants it on",
	"Quarantined":       "refuses the host for 24 h, or until a person releases it",
	"OperatorOff":       "the run is Held. If the Node registers again, it goes on at step 5",
	"FoundOff":          "the run is Held. If the Node registers again, it goes on at step 5",
	"ConfirmedOff":      "the run is Held. If the Node registers again, it goes on at step 5",
}

// TestEveryReasonHasAClass holds the table of reasons.md to the code. Its last row lists
// the codes that stop nothing: a new code must be put into a class, or looked at here. // L5
func TestEveryReasonHasAClass(t *testing.T) {
	codes := reasonConstants(t)
	for _, kind := range literals(t, "../internal/bmc/error.go") {
		codes = append(codes, "BMC"+kind)
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	for code := range nextOfCode {
		assert.Contains(t, codes, string(code))
		assert.NotEmpty(t, reason.ClassOf(code), code)
	}
	var b strings.Builder
	b.WriteString("| Code | Class | What fenced does next |\n|---|---|---|\n")
	var stopNothing []string
	for _, each := range codes {
		code := reason.Code(each)
		class := reason.ClassOf(code)
		next := nextOfCode[code]
		for _, of := range nextOf {
			if next == "" && of.class == class {
				next = of.next
			}
		}
		require.NotEmpty(t, next, each)
		if class == "" {
			stopNothing = append(stopNothing, "`"+each+"`")
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", each, class, next)
	}
	fmt.Fprintf(&b, "| %s | none | %s |\n", strings.Join(stopNothing, ", "), nextOf[len(nextOf)-1].next)
	before, got, after := classTable(t)
	if *update {
		require.NoError(t, os.WriteFile("reasons.md", []byte(before+tableBegins+b.String()+tableEnds+after), 0o644))
		return
	}
	assert.Equal(t, b.String(), got, "go test ./docs -update writes it anew")
}

// classTable returns the table of classes in reasons.md, and what is before and after it.
func classTable(t *testing.T) (before, table, after string) {
	t.Helper()
	before, rest, found := strings.Cut(documents(t)["reasons.md"], tableBegins)
	require.True(t, found, "reasons.md has no line %s", tableBegins)
	table, after, found = strings.Cut(rest, tableEnds)
	require.True(t, found, "reasons.md has no line %s", tableEnds)
	return before, table, after
}

// TestEventTable holds the table of kubernetes-events.md to the code.
func TestEventTable(t *testing.T) {
	const page = "kubernetes-events.md"
	var b strings.Builder
	b.WriteString("| Reason | Type | On | When | Whose name |\n|---|---|---|---|---|\n")
	for _, r := range report.Table() {
		typ := "Normal"
		if r.Warning {
			typ = "Warning"
		}
		var on []string
		for _, s := range r.On {
			on = append(on, string(s))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Reason, typ, strings.Join(on, ", "), r.Means, r.Like)
	}
	before, rest, found := strings.Cut(documents(t)[page], tableBegins)
	require.True(t, found, "%s has no line %s", page, tableBegins)
	got, after, found := strings.Cut(rest, tableEnds)
	require.True(t, found, "%s has no line %s", page, tableEnds)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+tableBegins+b.String()+tableEnds+after), 0o644))
		return
	}
	assert.Equal(t, b.String(), got, "go test ./docs -update writes it anew")
}

// TestPowerExamplesLoad: what people will copy is a hosts.d file as it stands.
func TestPowerExamplesLoad(t *testing.T) {
	for file, want := range map[string][]string{
		"../README.md": {
			"https://192.0.2.15:443, then fence_apc://pdu-a#7 + fence_apc://pdu-b#7",
		},
		"power.md": {
			"https://192.0.2.15:443/redfish/v1/Systems/1, then fence_apc_snmp://pdu-a.example.org#7 + fence_raritan_px3://pdu-b.example.org#7",
			"fence_apc_snmp://pdu-c.example.org#8",
			"fence_lpar://hmc.example.org#worker-9",
			"https://192.0.2.16:443/redfish/v1/Systems/1, then bmclib+ipmi://192.0.2.16:623",
		},
	} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(documents(t)[file], -1)
			for i, m := range examples {
				require.NoError(t, os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".yaml"), []byte(m[1]), 0o600))
			}
			c := must.Do(config.Load("../configs/fenced.yaml", "hosts="+dir))(t)
			hosts := must.Do(config.LoadHosts(c))(t)
			var got []string
			for _, h := range hosts {
				got = append(got, h.Address())
			}
			assert.Equal(t, want, got)
		})
	}
}

// TestEveryDriverHasARow: the first table tells each driver, and how far it can be
// believed.
func TestEveryDriverHasARow(t *testing.T) {
	told := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|[^|]*\\| (strict|lower) \\|").FindAllStringSubmatch(documents(t)["power.md"], -1) {
		told[m[1]] = m[2]
	}
	known := map[string]string{}
	for _, d := range bmc.Drivers() {
		known[string(d.Name)] = string(d.Assurance)
	}
	require.Greater(t, len(known), 3, "the drivers were not found")
	assert.Equal(t, known, told)
}

// TestEveryPeerNamesItsTest: each row of the table of what was tried names a test.
// TestNamedTestsExist looks for them.
func TestEveryPeerNamesItsTest(t *testing.T) {
	_, table, found := strings.Cut(documents(t)["power.md"], "\n## Tried with\n")
	require.True(t, found)
	rows := regexp.MustCompile(`(?m)^\| [^|]+ \|.*$`).FindAllString(table, -1)
	require.Greater(t, len(rows), 15, "the rows were not found")
	for _, row := range rows[1:] {
		cells := strings.Split(row, "|")
		require.Len(t, cells, 7, row)
		assert.Regexp(t, "`Test[A-Z]\\w+`", cells[5], row)
	}
}

// TestPortsAreThoseOfTheCode: the page names the ports that addresses without one have, and where the
// metrics are.
func TestPortsAreThoseOfTheCode(t *testing.T) {
	page := documents(t)["network.md"]
	for address, protocol := range map[string]string{
		"ipmi://192.0.2.1": "udp", "redfish://192.0.2.1/redfish/v1/Systems/1": "tcp", "redfish+http://192.0.2.1/redfish/v1/Systems/1": "tcp",
	} {
		e := must.Do(bmc.ParseEndpoint(address))(t)
		port := strconv.Itoa(e.Port)
		assert.Contains(t, page, port+"/"+protocol, address)
		assert.Regexp(t, `ip daddr @bmcs `+protocol+` dport [^\n]*\b`+port+`\b`, page, address)
	}
	listen := config.Default().Metrics.Listen
	assert.Contains(t, page, "`"+listen+"`")
	_, port, _ := strings.Cut(listen, ":")
	assert.Equal(t, 1, strings.Count(page, "| "+port+"/tcp |"))
	assert.Contains(t, page, "`"+config.Default().Control.Socket+"`")
}

// TestFirewallRulesAreUnderstood: nft takes the table as it is, for a user that this machine has.
func TestFirewallRulesAreUnderstood(t *testing.T) {
	block := regexp.MustCompile("(?s)```nft\n(.*?)```").FindStringSubmatch(documents(t)["network.md"])
	require.NotNil(t, block)
	require.Contains(t, block[1], `meta skuid != "fenced"`)
	rules := strings.ReplaceAll(block[1], `"fenced"`, `"root"`)
	asroot.Need(t, "ask nft")
	nft, err := exec.LookPath("nft")
	if err != nil {
		nft = "/usr/sbin/nft"
	}
	if _, err := os.Stat(nft); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("nft is not installed; `make deps` does it")
		}
		t.Skip("nft is not installed; `make deps` does it")
	}
	file := filepath.Join(t.TempDir(), "rules")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
	said, err := exec.Command("unshare", "--net", nft, "-c", "-f", file).CombinedOutput()
	assert.NoError(t, err, "%s", said)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(rules, "@bmcs", "@nothing", 1)), 0o600))
	require.Error(t, exec.Command("unshare", "--net", nft, "-c", "-f", file).Run(), "a wrong rule is noticed")
}

// TestEtcdIsSetUpAsInTheTests: each setting of the page for the etcd is a flag with which the tests
// start theirs; those of the peers are the same for other connections.
func TestEtcdIsSetUpAsInTheTests(t *testing.T) {
	code := must.Do(os.ReadFile("../test/rig/etcdcluster.go"))(t)
	settings := regexp.MustCompile(`(?m)^    ETCD_([A-Z_]+)=\S+$`).FindAllStringSubmatch(documents(t)["placement.md"], -1)
	require.Greater(t, len(settings), 10)
	for _, m := range settings {
		flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(m[1], "PEER_")), "_", "-")
		assert.Contains(t, string(code), `"`+flag, "ETCD_%s", m[1])
	}
}

// TestSizesWereMeasured: each number in the column "Measured" is one of the results.
func TestSizesWereMeasured(t *testing.T) {
	all := documents(t)
	found := 0
	for _, row := range regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]*\d[^|]*) \|`).FindAllStringSubmatch(all["sizing.md"], -1) {
		for _, number := range regexp.MustCompile(`\d[\d.]* (?:[KMG]i?B|%|m?s)\b|\d[\d.]* %`).FindAllString(row[1], -1) {
			found++
			assert.Contains(t, all["results.md"]+all["performance.md"], number)
		}
	}
	assert.Greater(t, found, 7, "the numbers were not found")
}
