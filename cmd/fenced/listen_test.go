package main

import (
	"net"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPassedSocketIsTheControlSocketOrAnError(t *testing.T) {
	path, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer path.Close()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer port.Close()

	ln, err := passedSocket(nil)
	require.NoError(t, err)
	assert.Nil(t, ln, "without socket activation there is none")
	ln, err = passedSocket(map[string][]net.Listener{"control": {path}})
	require.NoError(t, err)
	assert.Equal(t, path, net.Listener(ln))

	for want, all := range map[string]map[string][]net.Listener{
		"2 sockets named":   {"control": {path, path}},
		`named "other"`:     {"other": {path}},
		"a socket of tcp":   {"control": {port}},
		`1 sockets named "`: {"control": {path}, "": {path}},
	} {
		_, err := passedSocket(all)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "fenced.socket", "it says where to look")
	}
}

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
