package remediate

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRefusedRestoreSaysWhy(t *testing.T) {
	r, s := begin(RestoreNode, minute+1)
	s.Restored, s.RestoreError = No, "no labels here"
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, "no labels here", got.Note)
}
