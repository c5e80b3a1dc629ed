package hosts

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/state"
)

// A contradiction counts at once, and stays while the store does not have it: whatever is read from
// the store or written by somebody else meanwhile. Only newer evidence ends it. // I8
func TestContradictionOutlivesWhatIsStored(t *testing.T) {
	p := newPins()
	pin := state.Pin{Host: "c/n", Version: 1, SystemUUID: mine}
	void := func() bool { got, _, _ := p.get("c/n"); return got.Contradicted != "" }
	next := func() state.Pin { pin.Version++; return pin }
	p.put(pin)
	p.contradict("c/n", mine, "why")
	assert.False(t, void(), "the same machine")
	p.contradict("c/other", theirs, "why")
	assert.Empty(t, p.unsavedOf("c"), "nothing is pinned there")

	p.contradict("c/n", theirs, "why")
	assert.True(t, void())
	p.put(pin)
	assert.True(t, void(), "the pins are read again")
	p.put(next())
	assert.True(t, void(), "somebody else wrote the pin of the same machine")
	assert.Len(t, p.unsavedOf("c"), 1)
	assert.Empty(t, p.unsavedOf("other"))

	saved := p.unsavedOf("c")[0]
	saved.Version = next().Version
	p.put(saved)
	assert.True(t, void())
	assert.Empty(t, p.unsavedOf("c"), "it is stored")
	p.supersede(next())
	assert.False(t, void(), "it was pinned again")

	p.contradict("c/n", theirs, "why")
	p.supersede(next())
	assert.False(t, void(), "before the store had the contradiction")
	p.contradict("c/n", theirs, "why")
	pin.SystemUUID = theirs
	p.put(next())
	assert.False(t, void(), "it is about the other machine")
	assert.Empty(t, p.unsavedOf("c"))
}
