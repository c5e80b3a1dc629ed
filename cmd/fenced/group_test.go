package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
)

func TestOthersInTheDaemonsGroup(t *testing.T) {
	etc := fstest.MapFS{
		"group": {Data: []byte("root:x:0:\nfenced:x:990:otto,fenced,anna\nfenced-view:x:991:vera,fenced\nodd\n\n")},
		"passwd": {Data: []byte("root:x:0:0::/root:/bin/sh\nfenced:x:990:990::/:/bin/false\nanna:x:1000:1000::/:/bin/sh\n" +
			"bert:x:1001:990::/:/bin/sh\nodd:x\n")},
	}
	assert.Equal(t, []string{"anna", "bert", "otto"}, othersIn(etc, "990"))
	assert.Equal(t, []string{"fenced", "vera"}, othersIn(etc, "991"))
	assert.Empty(t, othersIn(etc, "0"))
	assert.Empty(t, othersIn(fstest.MapFS{}, "990"), "nothing is known")
}
