package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUI runs the real program: the address that it prints opens the page once, its token stands in no command line and no
// environment, and the page ends with the command.
func TestUI(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	stop, err := startDaemon([]byte(`{"status":{"version":"1.2.3","armed":true},"nodes":{"nodes":[{"cluster":"prod","node":"n-1","state":"Held","checks":[],"bmcs":[]}]}}`), socket, filepath.Join(dir, "orders"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, stop()) }()
	program := filepath.Join(dir, "fencectl") // testscript.Main runs main under this name
	own, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(own, program))
	cmd := exec.Command(program, "--socket", socket, "ui")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	address := ""
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		address = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/\?token=\S+`).FindString(lines.Text())
	}
	require.NotEmpty(t, address)
	_, token, _ := strings.Cut(address, "token=")
	for _, of := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, of))
		require.NoError(t, err)
		assert.NotContains(t, string(text), token, of)
	}
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, want := range []int{http.StatusSeeOther, http.StatusForbidden} {
		resp, err := browser.Get(address)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, want, resp.StatusCode)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	assert.NoError(t, cmd.Wait(), "Ctrl-C is how it ends: exit status 0")
	_, err = browser.Get(address)
	assert.Error(t, err)
}
