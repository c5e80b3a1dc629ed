package event_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/test/must"
)

// Much of the text of an event was written by others.
func TestTextsOfEventsAreBounded(t *testing.T) {
	s := event.NewStream()
	long := strings.Repeat("é", 1<<19)
	s.Emit(event.Event{Message: long, Why: long, Inputs: long})
	kept := must.Do(s.After(t.Context(), 0))(t)
	for _, text := range []string{kept[0].Message, kept[0].Why, kept[0].Inputs} {
		assert.Less(t, len(text), 5000)
		assert.True(t, utf8.ValidString(text) && strings.HasSuffix(text, "é..."))
	}
}
