package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// matrix is what docs/results.md shows: the points, and the courses in which fenced
// died there.
type matrix struct {
	mu      sync.Mutex
	columns []column
}

// column is one course.
type column struct {
	course            string
	points            []string
	deaths, deletions int
	end               string
}

func (m *matrix) add(c column) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.columns = append(m.columns, c)
}

// table is the matrix in Markdown, the points in the order of their names.
func (m *matrix) table() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.SortFunc(m.columns, func(a, b column) int { return strings.Compare(a.course, b.course) })
	rows, head, rule := map[string]bool{}, []string{"killed at"}, []string{"---"}
	for _, c := range m.columns {
		head, rule = append(head, c.course), append(rule, "---")
		for _, p := range c.points {
			rows[pointOf(p)] = true
		}
	}
	lines := [][]string{head, rule}
	for _, point := range slices.Sorted(maps.Keys(rows)) {
		line := []string{point}
		for _, c := range m.columns {
			line = append(line, c.cell(point))
		}
		lines = append(lines, line)
	}
	for name, of := range map[string]func(column) string{
		"**deaths**":          func(c column) string { return fmt.Sprint(c.deaths) },
		"**Nodes deleted**":   func(c column) string { return fmt.Sprint(c.deletions) },
		"**end of each run**": func(c column) string { return c.end },
	} {
		line := []string{name}
		for _, c := range m.columns {
			line = append(line, of(c))
		}
		lines = append(lines, line)
	}
	slices.SortStableFunc(lines[2+len(rows):], func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	var text strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(line, " | "))
	}
	return text.String()
}

// pointOf is a point without whether it is before or after, and on which Node.
func pointOf(marker string) string {
	marker, _, _ = strings.Cut(marker, "@")
	_, point, _ := strings.Cut(marker, "-")
	return strings.ReplaceAll(point, "-", " ")
}

// cell says how often fenced died before and after a point.
func (c column) cell(point string) string {
	before, after := 0, 0
	for _, p := range c.points {
		switch {
		case pointOf(p) != point:
		case strings.HasPrefix(p, "before-"):
			before++
		default:
			after++
		}
	}
	if before+after == 0 {
		return ""
	}
	return fmt.Sprintf("%d+%d", before, after)
}
