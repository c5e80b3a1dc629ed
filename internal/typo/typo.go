package typo

import (
	"bytes"
	"fmt"
	"strings"
)

// most is how many letters a typing error may change, and maxWord how long a word may be that one is looked for in: a longer one
// is none, and not worth the time.
const (
	most    = 2
	maxWord = 64
)

// Hint ends an error with the known word that was probably meant; "" if none is near.
func Hint(wrong string, known []string) string {
	if best := Nearest(wrong, known); best != "" {
		return fmt.Sprintf(" (did you mean %s?)", best)
	}
	return ""
}

// Nearest is the known word that differs least from a wrong one; "" if none is near. Capitals count for nothing.
func Nearest(wrong string, known []string) string {
	best, distance := "", most+1
	if len(wrong) > maxWord {
		return ""
	}
	for _, k := range known {
		if d := editDistance(strings.ToLower(wrong), strings.ToLower(k)); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	return best
}

// editDistance counts the letters to insert, drop or change (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// TabText says what is wrong with a line that TabNear has found.
const TabText = "a tab indents this line, and YAML takes only spaces there"

// TabNear returns the line that a tab indents, if it is the one that a YAML parser has given or one beside it: parsers
// are off by one. It is 0 if none is.
func TabNear(text []byte, line int) int {
	for at, content := range lines(text, line+1) {
		indent := content[:len(content)-len(bytes.TrimLeft(content, " \t"))]
		if at+1 >= line-1 && bytes.IndexByte(indent, '\t') >= 0 && len(bytes.TrimSpace(content)) > 0 {
			return at + 1
		}
	}
	return 0
}

// lines are the first lines of a text.
func lines(text []byte, n int) [][]byte {
	all := bytes.SplitN(text, []byte("\n"), n+1)
	return all[:min(len(all), n)]
}
