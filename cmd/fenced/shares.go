package main

import (
	"slices"
	"strings"
)

// What an answer lists of a cluster: whoever may write objects in one namespace must not make the
// answer too long to read, nor keep what is of others out of it.
const (
	maxChecksShown  = 2000
	maxTargetsShown = 10_000
	maxShownText    = 1024 // bytes of a message
)

// share keeps at most that many of a list, in its order, and says how many it left out. If there
// are more, the namespaces have equal shares; of more namespaces than that the first in the list have one each.
// What has no namespace is of administrators, and has a share in any case.
func share[T any](list []T, most int, namespace func(T) string) (kept []T, more int) {
	if len(list) <= most {
		return list, 0
	}
	counts := map[string]int{}
	for _, x := range list {
		counts[namespace(x)]++
	}
	each := shareOfEach(counts, most)
	free := most - min(counts[""], each) // administrators have their share, however many namespaces there are
	clear(counts)
	for _, x := range list {
		in := namespace(x)
		if counts[in] == each || in != "" && free == 0 {
			continue
		}
		if in != "" {
			free--
		}
		counts[in]++
		kept = append(kept, x)
	}
	return kept, len(list) - len(kept)
}

// shareOfEach returns how many each namespace may have, so that together they have at most that
// many. A namespace that needs less leaves the rest to the others. It is one if there are more namespaces than that.
func shareOfEach(counts map[string]int, most int) int {
	sizes := make([]int, 0, len(counts))
	for _, n := range counts {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	for i, n := range sizes {
		left := len(sizes) - i
		if n*left > most {
			return max(1, most/left)
		}
		most -= n
	}
	return sizes[len(sizes)-1]
}

// namespaceIn returns the namespace of a "namespace/name", or of a "kind namespace/name"; "" if it names none.
func namespaceIn(key string) string {
	before, _, ok := strings.Cut(key, "/")
	if !ok {
		return ""
	}
	return before[strings.LastIndex(before, " ")+1:]
}

// shown is the start of a text that others may have written.
func shown(text string) string {
	if len(text) <= maxShownText {
		return text
	}
	return strings.ToValidUTF8(text[:maxShownText], "") + "..."
}
