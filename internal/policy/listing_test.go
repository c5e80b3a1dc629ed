package policy

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

// A listing is a map of slices, whatever is added and removed, and in the order in which it was.
func TestLawListing(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		sorted, x, want := rapid.Bool().Draw(t, "sorted"), newListing[string, int](), map[string][]int{}
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			key, v := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key"), rapid.IntRange(0, 4).Draw(t, "value")
			switch rapid.IntRange(0, 6).Draw(t, "change") {
			case 0, 1:
				held, through := slices.Collect(x.of(key)), []int(nil)
				for had := range x.of(key) { // a caller that goes through it goes through all that it was
					if through == nil {
						x.drop(key, v)
					}
					through = append(through, had)
				}
				assert.Equal(t, held, through)
				if at := slices.Index(want[key], v); at >= 0 {
					want[key] = slices.Delete(want[key], at, at+1)
				}
			case 2:
				x.keep(key, func(o int) bool { return o != v })
				want[key] = slices.DeleteFunc(want[key], func(o int) bool { return o == v })
			default:
				if sorted {
					x.put(key, v, cmp.Compare)
					want[key] = append(want[key], v)
					slices.Sort(want[key])
				} else {
					x.add(key, v)
					want[key] = append(want[key], v)
				}
			}
			for key, list := range want {
				assert.Equal(t, len(list), x.len(key))
				assert.ElementsMatch(t, list, slices.Collect(x.of(key)))
				if len(list) > 0 {
					assert.Equal(t, list, slices.Collect(x.of(key)))
				}
				for first := range x.of(key) {
					assert.Equal(t, list[0], first)
					break
				}
			}
		}
		for key, list := range want {
			for _, v := range list {
				x.drop(key, v)
			}
		}
		assert.Empty(t, x.one)
		assert.Empty(t, x.several, "nothing stays of what is gone")
	})
}
