package docs_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

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
