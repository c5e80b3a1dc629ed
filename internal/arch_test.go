// Package internal_test checks the shape of the house: who may import whom, and
// that the judging packages are pure. docs/architecture.md tells the story.
package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

const module = "github.com/fenced/fenced/"

// rule is one row of the import table.
type rule struct {
	internal []string // packages below internal/ it may import
	outside  []string // prefixes of other modules it may import
}

// table is docs/architecture.md's import table. A package that is not in it
// fails the test, so a new wall is always a decision.
var table = map[string]rule{
	"internal/reason":     {nil, nil},
	"internal/times":      {nil, nil},
	"internal/typo":       {nil, nil},
	"internal/guard":      {[]string{"reason", "times"}, nil},
	"internal/policy":     {[]string{"reason", "bmc", "times", "typo"}, []string{"k8s.io/apimachinery/pkg/labels", "k8s.io/apimachinery/pkg/util/intstr"}},
	"internal/remediate":  {[]string{"bmc", "reason", "times"}, nil},
	"internal/bmc":        {nil, nil},
	"internal/power":      {[]string{"bmc", "live", "state", "times"}, nil},
	"internal/request":    {[]string{"reason", "policy", "remediate"}, nil},
	"internal/escalate":   {[]string{"admit", "bmc", "cluster", "event", "live", "order", "wire", "policy", "reason", "remediate", "request", "run", "state", "times"}, []string{"golang.org/x/sync/"}},
	"internal/manifest":   {[]string{"policy", "typo"}, []string{"k8s.io/apimachinery/", "sigs.k8s.io/yaml", "go.yaml.in/yaml/", "github.com/robfig/cron/"}},
	"internal/ipmi":       {[]string{"bmc"}, nil},
	"internal/redfish":    {[]string{"bmc"}, []string{"github.com/stmcginnis/gofish"}},
	"internal/bmclib":     {[]string{"bmc"}, []string{"github.com/bmc-toolbox/bmclib/", "github.com/go-logr/logr"}},
	"internal/fenceagent": {[]string{"bmc"}, []string{"golang.org/x/sys/unix"}},
	"internal/suspend":    {nil, []string{"golang.org/x/sys/unix"}},
	"internal/localbmc":   {nil, []string{"github.com/u-root/u-root/pkg/ipmi"}},
	"internal/audit":      {nil, nil},
	"internal/live":       {nil, []string{"golang.org/x/sync/errgroup"}},
	"internal/state":      {[]string{"remediate", "live"}, nil},
	"internal/k8swatch":   {[]string{"k8swatch/client", "k8swatch/view", "k8swatch/look", "k8swatch/write", "policy", "remediate"}, []string{"go.uber.org/zap"}},
	"internal/config":     {[]string{"bmc", "typo"}, []string{"github.com/spf13/viper", "go.yaml.in/yaml/"}},
	"internal/setup":      {[]string{"bmc", "policy"}, []string{"go.yaml.in/yaml/", "github.com/fenced/fenced/configs"}},
	"internal/event":      {[]string{"reason", "remediate"}, nil},
	"internal/order":      {[]string{"reason", "wire"}, nil},
	"internal/stop":       {[]string{"bmc", "event", "order", "wire", "reason", "state", "live", "times"}, []string{"golang.org/x/sync/semaphore"}},
	"internal/lead":       {[]string{"bmc", "event", "reason", "remediate", "state", "suspend"}, []string{"golang.org/x/sync/semaphore"}},
	"internal/hosts":      {[]string{"reason", "guard", "policy", "remediate", "bmc", "power", "state", "event", "order", "wire", "live"}, []string{"golang.org/x/sync/semaphore"}},
	"internal/run":        {[]string{"reason", "policy", "remediate", "bmc", "power", "state", "event", "hosts", "lead", "guard"}, nil},
	"internal/cluster":    {[]string{"reason", "guard", "policy", "remediate", "bmc", "wire", "request", "times"}, nil},
	"internal/admit":      {[]string{"reason", "guard", "policy", "remediate", "bmc", "power", "state", "event", "order", "wire", "hosts", "stop", "lead", "run", "cluster", "suspend", "request", "times"}, []string{"golang.org/x/sync/", "golang.org/x/time/rate"}},
	"internal/engine":     {[]string{"reason", "guard", "policy", "remediate", "bmc", "power", "state", "event", "order", "wire", "hosts", "stop", "lead", "run", "cluster", "admit", "suspend", "request", "live", "times"}, []string{"golang.org/x/sync/"}},
	"internal/failpoint":  {[]string{"policy", "remediate", "bmc", "state", "event", "lead", "admit", "engine"}, nil},
	"internal/sweep":      {[]string{"bmc", "power", "hosts", "event", "guard", "reason", "live", "times"}, nil},
	"internal/logging":    {[]string{"wire"}, []string{"go.uber.org/zap", "github.com/coreos/go-systemd/v22/journal", "golang.org/x/sys/unix"}},
	"internal/report":     {[]string{"bmc", "event", "reason", "remediate", "live", "times"}, []string{"golang.org/x/sync/errgroup"}},
	"internal/timeline":   {[]string{"wire", "audit", "bmc", "event", "reason", "remediate", "sweep"}, nil},
	"internal/page":       {[]string{"api", "audit", "live", "wire", "reason", "remediate"}, []string{"k8s.io/apimachinery/pkg/util/duration", "golang.org/x/net/netutil"}},
	"internal/history":    {[]string{"audit", "event", "reason", "remediate", "sweep", "times", "wire"}, nil},
	"internal/login":      {nil, []string{"golang.org/x/sys/unix"}},
	"internal/support":    {[]string{"api", "wire", "audit", "bmc", "config"}, nil},
	"internal/remote":     {nil, nil},
	"internal/wire":       {[]string{"audit", "event", "reason", "remediate"}, nil},
	"internal/api":        {[]string{"audit", "login", "wire"}, []string{"golang.org/x/sys/unix"}},
	"cmd/fenced":          {[]string{"*"}, []string{"go.uber.org/zap", "github.com/coreos/go-systemd/", "github.com/prometheus/", "golang.org/x/net/netutil", "golang.org/x/sync/", "golang.org/x/sys/unix"}},
	"cmd/fenced-login":    {[]string{"login"}, []string{"github.com/coreos/go-systemd/v22/activation"}},
	"cmd/fencectl":        {[]string{"api", "remote", "wire", "audit", "policy", "reason", "manifest", "config", "setup", "support", "page"}, []string{"github.com/fenced/fenced/configs", "github.com/spf13/cobra", "golang.org/x/term", "golang.org/x/sys/unix", "go.yaml.in/yaml/", "github.com/mattn/go-runewidth"}},

	"internal/k8swatch/client": {[]string{"policy", "remediate", "manifest", "bmc"}, []string{"google.golang.org/protobuf/encoding/protowire", "k8s.io/", "go.uber.org/zap", "golang.org/x/sys/unix"}},
	"internal/k8swatch/view":   {[]string{"k8swatch/client", "policy", "manifest", "bmc", "request", "event", "live"}, []string{"k8s.io/", "go.uber.org/zap"}},
	"internal/k8swatch/look":   {[]string{"k8swatch/client", "k8swatch/view", "policy", "remediate", "manifest", "bmc"}, []string{"k8s.io/", "go.uber.org/zap"}},
	"internal/k8swatch/write":  {[]string{"k8swatch/client", "policy", "remediate", "manifest", "bmc", "request", "event", "live", "times"}, []string{"k8s.io/", "go.uber.org/zap", "golang.org/x/sys/unix"}},

	"internal/state/boltstore": {[]string{"state"}, []string{"go.etcd.io/bbolt"}},
	"internal/state/etcdstore": {[]string{"live", "state", "suspend"}, []string{"go.etcd.io/etcd/", "go.uber.org/zap"}},
}

// testHelpers are packages that only tests import; they answer to nobody's row.
var testHelpers = []string{"internal/bmc/bmctest", "internal/k8swatch/k8stest", "internal/state/statetest"}

func TestImportTable(t *testing.T) {
	seen, used := map[string]bool{}, map[string]bool{}
	eachFile(t, func(dir string, f *ast.File, _ *token.FileSet) {
		r, known := table[dir]
		require.True(t, known, "package %s is not in the import table; add it there and to docs/architecture.md", dir)
		seen[dir] = true
		for _, spec := range f.Imports {
			path := must.Do(strconv.Unquote(spec.Path.Value))(t)
			require.True(t, r.allows(path), "%s may not import %s", dir, path)
			used[dir+" "+strings.TrimPrefix(path, module+"internal/")] = true
		}
	})
	for dir := range table {
		require.True(t, seen[dir], "the import table names %s, which does not exist", dir)
		for _, pkg := range table[dir].internal {
			require.True(t, pkg == "*" || used[dir+" "+pkg], "the import table lets %s import %s, which it does not", dir, pkg)
		}
	}
}

// escalationHooks are the only files that know of package escalate: of the daemon, which passes it to the engine. Without
// them all else compiles, and asks nobody: its hooks are the interfaces admit.Escalation and engine.Escalation, and
// cluster.Repair, which the limits count.
var escalationHooks = []string{"cmd/fenced/escalation.go"}

func TestEscalationIsAnOption(t *testing.T) {
	var found []string
	eachFile(t, func(dir string, f *ast.File, set *token.FileSet) {
		for _, spec := range f.Imports {
			if spec.Path.Value == strconv.Quote(module+"internal/escalate") {
				found = append(found, dir+"/"+filepath.Base(set.File(f.Pos()).Name()))
			}
		}
	})
	assert.ElementsMatch(t, escalationHooks, found)
}

func (r rule) allows(path string) bool {
	if own, ok := strings.CutPrefix(path, module+"internal/"); ok {
		return slices.Contains(r.internal, own) || slices.Contains(r.internal, "*")
	}
	first, _, _ := strings.Cut(path, "/")
	if !strings.Contains(first, ".") {
		return true // standard library
	}
	return slices.ContainsFunc(r.outside, func(p string) bool { return strings.HasPrefix(path, p) })
}

// pure are packages, and files of a package that is not as a whole.
var pure = []string{"internal/policy", "internal/request", "internal/escalate/records.go", "internal/escalate/step.go", "internal/history", "internal/remediate", "internal/bmc", "internal/reason", "internal/times", "internal/typo", "internal/guard"}

// TestPurity: these start no goroutine and read no clock, so that the exhaustive search and the simulation run the shipped code.
func TestPurity(t *testing.T) {
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	found := 0
	eachFile(t, func(dir string, f *ast.File, set *token.FileSet) {
		if file := dir + "/" + filepath.Base(set.File(f.Pos()).Name()); !slices.Contains(pure, dir) && !slices.Contains(pure, file) {
			return
		}
		found++
		ast.Inspect(f, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a goroutine in a pure package", set.Position(x.Pos()))
			case *ast.SelectorExpr:
				if id, ok := x.X.(*ast.Ident); ok && id.Name == "time" && slices.Contains(clock, x.Sel.Name) {
					t.Errorf("%s: time.%s in a pure package; take now as an argument", set.Position(x.Pos()), x.Sel.Name)
				}
			}
			return true
		})
	})
	require.Greater(t, found, 5, "the pure packages were not found")
}

// TestFileSizes: a file that nobody can hold in the head is where bugs live.
func TestFileSizes(t *testing.T) {
	eachFile(t, func(_ string, f *ast.File, set *token.FileSet) {
		file := set.File(f.Pos())
		require.LessOrEqual(t, file.LineCount(), 600, "%s has more than 600 lines; it holds two ideas", file.Name())
	})
}

// maxMethods is how many methods a type may have, and how many may share one lock: those of the type that has it, and of
// every type of the package that embeds a pointer to that or holds nothing else. More are two ideas with data of their own.
const maxMethods = 40

// manyMethods are the types that may have more, each with the reason.
var manyMethods = map[string]string{
	"internal/policy.Ledger": "the incremental form of one function: every kind of object that changes is a method",
}

// TestMethodCounts counts the methods of each type and, for one with a lock, those of the types that only give it another
// name.
func TestMethodCounts(t *testing.T) {
	counts, wraps, locks := map[string]int{}, map[string][]string{}, map[string]bool{}
	eachFile(t, func(dir string, f *ast.File, _ *token.FileSet) {
		if !strings.HasPrefix(dir, "internal/") {
			return
		}
		for _, d := range f.Decls {
			if name := receiver(d); name != "" {
				counts[dir+"."+name]++
			}
			for name, s := range structs(d) {
				locks[dir+"."+name] = hasLock(s)
				for _, inner := range wrapped(s) {
					wraps[dir+"."+name] = append(wraps[dir+"."+name], dir+"."+inner)
				}
			}
		}
	})
	total := maps.Clone(counts)
	var add func(n int, name string)
	add = func(n int, name string) {
		for _, inner := range wraps[name] {
			if add(n, inner); locks[inner] {
				total[inner] += n
			}
		}
	}
	for name, n := range counts {
		add(n, name)
	}
	for name, n := range total {
		if _, many := manyMethods[name]; many {
			require.Greater(t, n, maxMethods, "%s has %d methods: it needs no exception", name, n)
			continue
		}
		assert.LessOrEqual(t, n, maxMethods, "%s has %d methods; find the part of it that has data of its own", name, n)
	}
	for name := range manyMethods {
		require.Contains(t, counts, name, "the exception names no type")
	}
}

func structs(d ast.Decl) map[string]*ast.StructType {
	found := map[string]*ast.StructType{}
	if g, ok := d.(*ast.GenDecl); ok {
		for _, spec := range g.Specs {
			if t, ok := spec.(*ast.TypeSpec); ok {
				if s, ok := t.Type.(*ast.StructType); ok {
					found[t.Name.Name] = s
				}
			}
		}
	}
	return found
}

// hasLock says whether a struct has a mutex.
func hasLock(s *ast.StructType) bool {
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		x, ok := f.Type.(*ast.SelectorExpr)
		return ok && (x.Sel.Name == "Mutex" || x.Sel.Name == "RWMutex")
	})
}

// wrapped lists the types of its own package to which a struct embeds a pointer, or holds nothing but one.
func wrapped(s *ast.StructType) (list []string) {
	for _, field := range s.Fields.List {
		if inner := pointsTo(field.Type); inner != "" && (len(field.Names) == 0 || s.Fields.NumFields() == 1) {
			list = append(list, inner)
		}
	}
	return list
}

// pointsTo names the type of the package to which a pointer points; "" for everything else.
func pointsTo(e ast.Expr) string {
	if p, ok := e.(*ast.StarExpr); ok {
		if id, ok := p.X.(*ast.Ident); ok {
			return id.Name
		}
	}
	return ""
}

// receiver names the type that a method is declared on; "" if d declares none.
func receiver(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	if !ok || f.Recv == nil {
		return ""
	}
	e := f.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x.Name
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		default:
			return ""
		}
	}
}

// TestReceiver: the count sees every form of a receiver.
func TestReceiver(t *testing.T) {
	const source = `package x
func (t T) a()           {}
func (t *T) b()          {}
func (T) c()             {}
func (*T) d()            {}
func (t *(T)) e()        {}
func (t G[K]) f()        {}
func (t *G[K]) g()       {}
func (t *G2[K, V]) h()   {}
func (t G2[_, _]) i()    {}
func noMethod(t T)       {}
var v = func(t T)        {}
`
	f := must.Do(parser.ParseFile(token.NewFileSet(), "x.go", source, 0))(t)
	counts := map[string]int{}
	for _, d := range f.Decls {
		counts[receiver(d)]++
	}
	assert.Equal(t, map[string]int{"T": 5, "G": 2, "G2": 2, "": 2}, counts)
}

// TestWrapped: a second name for a type counts for it, and so does what embeds a pointer to it.
func TestWrapped(t *testing.T) {
	const source = `package x
type (
	A struct{ *T }
	B struct{ t *T }
	C struct{ *T; *U; n int }
	D struct{ t *T; u *U }
	E struct{ T; U }
	F struct{ *other.T }
	T struct{ mu sync.Mutex }
	U struct{ sync.RWMutex }
)
`
	f := must.Do(parser.ParseFile(token.NewFileSet(), "x.go", source, 0))(t)
	wraps, locks := map[string][]string{}, map[string]bool{}
	for name, s := range structs(f.Decls[0]) {
		if of := wrapped(s); of != nil {
			wraps[name] = of
		}
		if hasLock(s) {
			locks[name] = true
		}
	}
	assert.Equal(t, map[string][]string{"A": {"T"}, "B": {"T"}, "C": {"T", "U"}}, wraps)
	assert.Equal(t, map[string]bool{"T": true, "U": true}, locks)
}

// eachFile parses every Go file of the product that is not a test.
func eachFile(t *testing.T, visit func(dir string, f *ast.File, set *token.FileSet)) {
	t.Helper()
	for _, top := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join("..", top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
			if slices.Contains(testHelpers, dir) {
				return nil
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, 0)
			if err == nil {
				visit(dir, f, set)
			}
			return err
		})
		require.NoError(t, err)
	}
}
