package remote

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

// TestParse: what is not plainly a user, a host and a port never reaches ssh, above all what ssh would take as an option.
func TestParse(t *testing.T) {
	for text, want := range map[string]Host{
		"ssh://bastion":                {Name: "bastion"},
		"ssh://anna@bastion":           {User: "anna", Name: "bastion"},
		"ssh://anna@bastion:2222":      {User: "anna", Name: "bastion", Port: 2222},
		"ssh://anna@[2001:db8::1]:22":  {User: "anna", Name: "2001:db8::1", Port: 22},
		"ssh://anna%40corp@10.0.0.1":   {User: "anna@corp", Name: "10.0.0.1"},
		"ssh://anna@[fe80::1%25eth0]":  {User: "anna", Name: "fe80::1%eth0"},
		"ssh://svc_ops@rack-7.example": {User: "svc_ops", Name: "rack-7.example"},
	} {
		h, err := Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, h, text)
	}
	for _, text := range []string{
		"", "bastion", "anna@bastion", "ssh:bastion", "ssh://", "ssh://@bastion", "SSH//bastion", "tcp://bastion", "unix:///run/fenced/fenced.sock", "http://bastion",
		"ssh://anna:secret@bastion", "ssh://anna:@bastion", "ssh://bastion/", "ssh://bastion/run/fenced.sock", "ssh://bastion?x=1", "ssh://bastion?", "ssh://bastion#", "ssh://bastion#x",
		"ssh://bastion:", "ssh://bastion:0", "ssh://bastion:65536", "ssh://bastion:ssh", "ssh://-oProxyCommand=touch", "ssh://-l@bastion", "ssh://-oProxyCommand%3Dx@bastion",
		"ssh://ba$(id)stion", "ssh://ba%20stion", "ssh://a;b@bastion", "ssh://a%0Ab@bastion", "ssh://a`b`@bastion", "ssh://a%27b@bastion", "ssh://[::1", "ssh://[-x::1]", "ssh://ba_st'ion",
		"ssh://" + strings.Repeat("a", 300), "ssh://" + strings.Repeat("a", 70) + "@bastion",
	} {
		_, err := Parse(text)
		assert.Error(t, err, text)
	}
}

func TestArguments(t *testing.T) {
	h := Host{User: "anna", Name: "bastion", Port: 2222}
	args := h.arguments("/run/fenced/fenced.sock", true)
	assert.Equal(t, []string{"-o", "BatchMode=yes", "-p", "2222", "-l", "anna", "--", "bastion", "fencectl dial-stdio --socket '/run/fenced/fenced.sock'"}, args[len(args)-9:])
	args = Host{Name: "bastion"}.arguments("", false)
	assert.Equal(t, []string{"--", "bastion", "fencectl dial-stdio"}, args[len(args)-3:])
	assert.NotContains(t, args, "BatchMode=yes")
	assert.Equal(t, "ssh -p 2222 anna@bastion", h.Command())
	require.NoError(t, CheckSocket("/run/fenced/fenced.sock"))
	for _, path := range []string{"", "run/s", "/run/a b", "/run/a'b", "/run/$(id)", "/run/a\nb", "/run/a;b", "/" + strings.Repeat("a", 108)} {
		assert.Error(t, CheckSocket(path), path)
	}
}

// fakeSSH makes a program ssh of a shell script, which stands for whatever ssh may do.
func fakeSSH(t *testing.T, script string) *Dialer {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ssh"), []byte("#!/bin/sh\n"+script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	d := &Dialer{Host: Host{User: "anna", Name: "bastion"}}
	t.Cleanup(d.End)
	return d
}

// TestLegs: each exit status is about one part of the way. What was said is bounded and kept from its end.
func TestLegs(t *testing.T) {
	for _, tc := range []struct {
		script string
		leg    Leg
		want   string
	}{
		{"echo one >&2; echo two >&2; echo three >&2; exit 255", SSH, "ssh to anna@bastion failed: two; three"},
		{"echo fencectl: not found >&2; exit 127", Missing, "fencectl is not installed on the host, or not in the PATH of anna@bastion: fencectl: not found"},
		{"exit 64", TooOld, "fencectl on the host of anna@bastion is too old for --host"},
		{"exit 4", Rights, "anna@bastion may not connect to the socket of fenced there"},
		{"exit 5", Socket, "logged in as anna@bastion, but fenced does not answer there"},
		{"echo This account is not available.; exit 1", Program, "the login of anna@bastion did not run fencectl: exit status 1: This account is not available."},
		{"exit 0", Program, "the login of anna@bastion did not run fencectl: exit status 0"},
		{"kill -9 $$", SSH, "ssh to anna@bastion failed"},
		{"i=0; while [ $i -lt 9000 ]; do echo 0123456789; i=$((i+1)); done; cat", Program, "it printed more than 64 KiB of something else"},
	} {
		_, err := fakeSSH(t, tc.script).Dial(t.Context())
		var e *Error
		require.ErrorAs(t, err, &e, tc.script)
		assert.Equal(t, tc.leg, e.Leg, tc.script)
		assert.Contains(t, err.Error(), tc.want)
	}
	_, err := fakeSSH(t, "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 255").Dial(t.Context())
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 600)
}

// TestConnectionThatBreaks: what ssh says when a connection breaks later is the error of the next read.
func TestConnectionThatBreaks(t *testing.T) {
	c := must.Do(fakeSSH(t, "echo "+Greeting+"; echo; echo Timeout, server not responding. >&2; exit 255").Dial(t.Context()))(t)
	_, err := io.ReadAll(c)
	require.ErrorContains(t, err, "ssh to anna@bastion failed: Timeout, server not responding.")
	c = must.Do(fakeSSH(t, "echo "+Greeting+"; echo hello").Dial(t.Context()))(t)
	text := must.Do(io.ReadAll(c))(t)
	assert.Equal(t, "hello\n", string(text), "an end in order is no error")
}

// TestDialEnds: nobody waits for an ssh that hangs, and End leaves none.
func TestDialEnds(t *testing.T) {
	d := fakeSSH(t, "trap '' TERM; while :; do sleep 1; done")
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() { _, err := d.Dial(ctx); cancelled <- err }()
	cancel()
	require.ErrorIs(t, <-cancelled, context.Canceled)
	d.End()
	assert.Empty(t, d.open)
	_, err := d.Dial(t.Context())
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestLoginThatHangs: nobody sits at a service, so it does not wait for ever for a login that never gets to fencectl.
func TestLoginThatHangs(t *testing.T) {
	d := fakeSSH(t, "exec sleep 1000")
	d.Quiet, d.patience = true, 10*time.Millisecond
	_, err := d.Dial(t.Context())
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Contains(t, err.Error(), "ssh to anna@bastion failed: the login has not reached fencectl within 10ms")
	assert.True(t, e.Temporary())
}

// TestJoinCarriesARefusal: a daemon may answer and close before it was asked; the answer arrives all the same.
func TestJoinCarriesARefusal(t *testing.T) {
	ln := must.Do(net.Listen("unix", filepath.Join(t.TempDir(), "s")))(t)
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_, _ = c.Write([]byte("refused")) // the reader is what is tested
			_ = c.Close()
		}
	}()
	c := must.Do(net.Dial("unix", ln.Addr().String()))(t)
	in, asking := io.Pipe()
	var out strings.Builder
	go func() { _, _ = asking.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }()
	require.NoError(t, Join(c, in, &out))
	assert.Equal(t, Greeting+"\nrefused", out.String())
}

// TestJoinEndsWithItsReader: who asked has gone.
func TestJoinEndsWithItsReader(t *testing.T) {
	ours, theirs := net.Pipe()
	require.NoError(t, Join(ours, strings.NewReader(""), io.Discard))
	_, err := theirs.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
