package event

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatIsToldOnceUntilItChanges(t *testing.T) {
	var one Told[string]
	var each ToldOf[string, string]
	for i, step := range []struct {
		now  string
		news bool
	}{{"", false}, {"refused", true}, {"refused", false}, {"no answer", true}, {"", false}, {"no answer", true}} {
		assert.Equal(t, step.news, one.News(step.now), "step %d", i)
		assert.Equal(t, step.news, each.News("a", step.now), "step %d", i)
	}
	assert.True(t, each.News("b", "no answer"), "another thing")
	assert.False(t, each.News("b", ""))
	assert.Len(t, each.last, 1, "nothing is kept of what there is nothing to tell of")
}
