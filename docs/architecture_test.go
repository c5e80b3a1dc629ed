package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

// TestImportTableIsTheOneThatIsChecked: a newcomer reads in architecture.md what
// internal/arch_test.go holds the code to.
func TestImportTableIsTheOneThatIsChecked(t *testing.T) {
	checked := checkedImports(t)
	require.Greater(t, len(checked), 15, "the table of arch_test.go was not found")
	row := regexp.MustCompile("(?m)^\\| ((?:`[\\w/-]+`(?:, )?)+) \\| [^|]+ \\| ([^|]+) \\|$")
	told := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(documents(t)["architecture.md"], -1) {
		for _, pkg := range names(m[1]) {
			if !strings.HasPrefix(pkg, "cmd/") {
				pkg = "internal/" + pkg
			}
			told[pkg] = names(m[2])
			if m[2] == "all" {
				told[pkg] = []string{"*"}
			}
		}
	}
	for pkg, imports := range checked {
		require.Contains(t, told, pkg)
		assert.ElementsMatch(t, imports, told[pkg], pkg)
	}
	assert.Len(t, told, len(checked), "a package is told of that is not")
}

// TestFilesOfAPackageExist: the table of files in a package's own documentation names no file
// that was moved or deleted.
func TestFilesOfAPackageExist(t *testing.T) {
	docs := must.Do(filepath.Glob("../internal/*/doc.go"))(t)
	require.NotEmpty(t, docs)
	named := 0
	for _, doc := range docs {
		text := must.Do(os.ReadFile(doc))(t)
		for _, line := range regexp.MustCompile(`(?m)^//\t.*$`).FindAllString(string(text), -1) {
			for _, file := range regexp.MustCompile(`\b\w+\.go\b`).FindAllString(line, -1) {
				named++
				assert.FileExists(t, filepath.Join(filepath.Dir(doc), file), "which %s names", doc)
			}
		}
	}
	assert.Greater(t, named, 100)
}

// names are the words in back quotes, without what follows in parentheses.
func names(cell string) (found []string) {
	cell = regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(cell, "")
	for _, m := range regexp.MustCompile("`([\\w/-]+)`").FindAllStringSubmatch(cell, -1) {
		found = append(found, m[1])
	}
	return found
}

// checkedImports is the table of internal/arch_test.go: for each package, what of
// internal/ it may import.
func checkedImports(t *testing.T) map[string][]string {
	t.Helper()
	f := must.Do(parser.ParseFile(token.NewFileSet(), "../internal/arch_test.go", nil, 0))(t)
	table := map[string][]string{}
	rules := f.Scope.Lookup("table")
	require.NotNil(t, rules, "arch_test.go has no table")
	ast.Inspect(rules.Decl.(*ast.ValueSpec), func(n ast.Node) bool {
		kv, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, isLit := kv.Key.(*ast.BasicLit)
		rule, isRule := kv.Value.(*ast.CompositeLit)
		if !isLit || !isRule || len(rule.Elts) != 2 {
			return true
		}
		pkg := must.Do(strconv.Unquote(key.Value))(t)
		table[pkg] = nil
		if list, ok := rule.Elts[0].(*ast.CompositeLit); ok {
			for _, e := range list.Elts {
				name := must.Do(strconv.Unquote(e.(*ast.BasicLit).Value))(t)
				table[pkg] = append(table[pkg], name)
			}
		}
		return false
	})
	return table
}

// TestRooms draws rooms.svg: the packages, each above what it imports, and the way of one fence through them, with the steps
// and in the order of the files that architecture.md lists. make golden writes it.
func TestRooms(t *testing.T) {
	imports := checkedImports(t)
	maps.DeleteFunc(imports, func(pkg string, _ []string) bool { return strings.HasPrefix(pkg, "cmd/") })
	rooms := map[string]*room{}
	for pkg := range imports {
		rooms[strings.TrimPrefix(pkg, "internal/")] = &room{name: strings.TrimPrefix(pkg, "internal/")}
	}
	for pkg, list := range imports {
		for _, of := range list {
			r := rooms[strings.TrimPrefix(pkg, "internal/")]
			r.uses = append(r.uses, rooms[of])
		}
	}
	_, text, found := strings.Cut(documents(t)["architecture.md"], "\n## The way of one fence\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	var way []*room
	step := ""
	for _, m := range regexp.MustCompile("(?m)^(\\d+)\\. |`internal/([\\w/]+\\.go)`").FindAllStringSubmatch(text, -1) {
		if m[1] != "" {
			step = m[1]
			continue
		}
		require.FileExists(t, "../internal/"+m[2])
		r := rooms[path.Dir(m[2])]
		if len(way) == 0 || way[len(way)-1] != r {
			way = append(way, r)
		}
		if !slices.Contains(r.steps, step) {
			r.steps = append(r.steps, step)
		}
	}
	require.Greater(t, len(way), 10, "the way was not found")
	drawn := draw(rooms, way)
	if *update {
		require.NoError(t, os.WriteFile("rooms.svg", []byte(drawn), 0o644))
	}
	stored := must.Do(os.ReadFile("rooms.svg"))(t)
	assert.True(t, drawn == string(stored), "rooms.svg is old; run make golden")
}

// room is a package in the picture.
type room struct {
	name  string
	uses  []*room
	floor int      // 0 imports nothing of internal/
	x, y  int      // its middle
	steps []string // of the way
}

func (r *room) height() int {
	floor := 0
	for _, of := range r.uses {
		floor = max(floor, of.height()+1)
	}
	return floor
}

// reaches reports whether r uses another room in some way.
func (r *room) reaches(other *room) bool {
	return slices.ContainsFunc(r.uses, func(of *room) bool { return of == other || of.reaches(other) })
}

const (
	roomWidth, roomHeight   = 116, 30
	floorWidth, floorHeight = 1220, 74
)

// draw places the rooms floor by floor, a room near what uses it. Of the imports it draws those that no other import explains.
func draw(rooms map[string]*room, way []*room) string {
	floors := map[int][]*room{}
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		r := rooms[name]
		r.floor = r.height()
		floors[r.floor] = append(floors[r.floor], r)
	}
	for floor := len(floors) - 1; floor >= 0; floor-- {
		list := floors[floor]
		slices.SortStableFunc(list, func(a, b *room) int { return above(rooms, a) - above(rooms, b) })
		for i, r := range list {
			r.x, r.y = floorWidth*(2*i+1)/(2*len(list)), floorHeight*(len(floors)-1-floor)+floorHeight/2
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" text-anchor="middle">
<title>The packages of fenced, each above what it imports, and the way of one fence through them</title>
<style>
svg { background: #fff; color: #222 } rect { fill: #f3f3f0; stroke: #888 } rect.way { fill: #ffe3c2; stroke: #c60 }
path { fill: none; stroke: #ccc } path.way { stroke: #c60; stroke-width: 2; stroke-opacity: .6 } text { fill: #222 } text.step { fill: #a40; font-size: 10px }
</style>
`, floorWidth, floorHeight*len(floors))
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		r := rooms[name]
		for _, of := range r.uses {
			if !slices.ContainsFunc(r.uses, func(u *room) bool { return u.reaches(of) }) {
				line(&b, "", r.x, r.y+roomHeight/2, of.x, of.y-roomHeight/2)
			}
		}
	}
	for i, r := range way {
		if i > 0 {
			line(&b, ` class="way"`, way[i-1].x, way[i-1].y, r.x, r.y)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		r := rooms[name]
		class := ""
		if len(r.steps) > 0 {
			class = ` class="way"`
		}
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\"%s/>\n<text x=\"%d\" y=\"%d\">%s</text>\n",
			r.x-roomWidth/2, r.y-roomHeight/2, roomWidth, roomHeight, class, r.x, r.y+4, r.name)
		if len(r.steps) > 0 {
			fmt.Fprintf(&b, "<text class=\"step\" x=\"%d\" y=\"%d\">%s</text>\n", r.x, r.y-roomHeight/2-4, strings.Join(r.steps, " "))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// above is the middle of what uses a room, from the left.
func above(rooms map[string]*room, r *room) int {
	sum, n := floorWidth/2, 1
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		if user := rooms[name]; user.x > 0 && slices.Contains(user.uses, r) {
			sum, n = sum+user.x, n+1
		}
	}
	return sum / n
}

// line draws a curve that leaves and arrives upright.
func line(b *strings.Builder, class string, x1, y1, x2, y2 int) {
	middle := (y1 + y2) / 2
	fmt.Fprintf(b, "<path%s d=\"M%d %dC%d %d %d %d %d %d\"/>\n", class, x1, y1, x1, middle, x2, middle, x2, y2)
}

// drawnBox is a box in the picture, with its title and what is in it.
type drawnBox struct {
	X, Y, Width, Height int
	Class, Title        string
	Lines               []string
}

// arrow is one between two boxes, with what goes along it.
type arrow struct {
	X1, Y1, X2, Y2 int
	TextX, TextY   int
	Lines          []string
}

// The cluster is on the left, what fenced reaches without it on the right.
var (
	boxes = []drawnBox{
		{X: 20, Y: 20, Width: 380, Height: 150, Class: "cluster", Title: "Kubernetes cluster: its API", Lines: []string{
			"health checks of OpenShift, Cluster API, medik8s", "Machines, BareMetalHosts", "Nodes, their Leases, pods, volumes",
		}},
		{X: 20, Y: 330, Width: 380, Height: 110, Class: "cluster", Title: "Hosts", Lines: []string{
			"worker-1: hangs", "worker-2, worker-3: run", "nothing of fenced is on them",
		}},
		{X: 600, Y: 20, Width: 280, Height: 150, Class: "fenced", Title: "A host beside the cluster", Lines: []string{
			"fenced: a systemd service", "its state and its audit log", "fencectl, for people",
		}},
		{X: 600, Y: 330, Width: 280, Height: 110, Class: "bmc", Title: "BMC of each host, PDUs", Lines: []string{
			"powered apart from the host", "on the management network",
		}},
	}
	arrows = []arrow{
		{X1: 600, Y1: 60, X2: 400, Y2: 60, TextX: 500, TextY: 50, Lines: []string{"watches all of these"}},
		{X1: 600, Y1: 130, X2: 400, Y2: 130, TextX: 500, TextY: 86, Lines: []string{"saves and deletes the Node,", "once its host is proven off;", "restores it on the new Node"}},
		{X1: 740, Y1: 170, X2: 740, Y2: 330, TextX: 740, TextY: 226, Lines: []string{"IPMI, Redfish: reads the identity, sends Off,", "reads Off twice, sends On"}},
		{X1: 600, Y1: 385, X2: 400, Y2: 385, TextX: 500, TextY: 374, Lines: []string{"switches its power"}},
		{X1: 210, Y1: 330, X2: 210, Y2: 170, TextX: 210, TextY: 226, Lines: []string{"kubelet: its Lease stops;", "after the boot it registers a new Node"}},
	}
)

var whereTemplate = template.Must(template.New("where").Funcs(template.FuncMap{
	"add": func(a ...int) (sum int) {
		for _, n := range a {
			sum += n
		}
		return sum
	},
	"rows": func(i int) int { return 18 * i },
}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 460" font-family="sans-serif" font-size="13">
<title>fenced stands beside the cluster, and reaches the BMCs without it</title>
<defs><marker id="end" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z" fill="#666"/></marker></defs>
<style>svg { background: #fff } text { fill: #222 } .title { font-weight: bold; font-size: 15px } rect { stroke: #888 } .cluster { fill: #eef3f8 } .fenced { fill: #ffe3c2 } .bmc { fill: #f3f3f0 } line { stroke: #666; stroke-width: 1.5 } .way { text-anchor: middle; fill: #444; font-size: 12px; paint-order: stroke; stroke: #fff; stroke-width: 5px }</style>
{{range .Places}}<rect class="{{.Class}}" x="{{.X}}" y="{{.Y}}" width="{{.Width}}" height="{{.Height}}" rx="6"/>
<text class="title" x="{{add .X 14}}" y="{{add .Y 28}}">{{.Title}}</text>
{{$p := .}}{{range $i, $line := .Lines}}<text x="{{add $p.X 14}}" y="{{add $p.Y 54 (rows $i)}}">{{$line}}</text>
{{end}}{{end}}{{range .Ways}}<line x1="{{.X1}}" y1="{{.Y1}}" x2="{{.X2}}" y2="{{.Y2}}" marker-end="url(#end)"/>
{{$w := .}}{{range $i, $line := .Lines}}<text class="way" x="{{$w.TextX}}" y="{{add $w.TextY (rows $i)}}">{{$line}}</text>
{{end}}{{end}}</svg>
`))

// TestWhereFencedStands draws where.svg, which the README shows. make golden writes it.
func TestWhereFencedStands(t *testing.T) {
	var drawn strings.Builder
	require.NoError(t, whereTemplate.Execute(&drawn, map[string]any{"Places": boxes, "Ways": arrows}))
	if *update {
		require.NoError(t, os.WriteFile("where.svg", []byte(drawn.String()), 0o644))
	}
	assert.True(t, drawn.String() == string(must.Do(os.ReadFile("where.svg"))(t)), "where.svg is old; run make golden")
}
