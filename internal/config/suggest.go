package config

import (
	"fmt"
	"strings"
)

// didYouMean ends an error with the known key that was probably meant.
func didYouMean(wrong string, known []string) string {
	best, distance := "", 3
	if len(wrong) > 64 {
		return "" // not a typing error, and not worth the time
	}
	for _, k := range known {
		if d := editDistance(strings.ToLower(wrong), strings.ToLower(k)); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
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
