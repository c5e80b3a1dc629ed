package main

import (
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fencectl": main})
}

// TestScript runs the real program; see testdata/script.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error { // the fenced.yaml of the package
			reference, err := filepath.Abs("../../configs/fenced.yaml")
			e.Setenv("REFERENCE", reference)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": cmdDaemon,
			"raw":    cmdRaw,
			"silent": cmdSilent,
			"exits":  cmdExits,
		},
	})
}

// cmdDaemon starts a daemon on the socket `s` that answers from a fixture and
// appends its orders to the file `orders`.
func cmdDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: daemon FIXTURE.json")
	}
	stop, err := startDaemon([]byte(ts.ReadFile(args[0])), ts.MkAbs("s"), ts.MkAbs("orders"))
	ts.Check(err)
	ts.Defer(func() { ts.Check(stop()) })
}

// cmdRaw serves a file on the socket `s`, whatever is asked.
func cmdRaw(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: raw FILE")
	}
	stop, err := startRaw([]byte(ts.ReadFile(args[0])), ts.MkAbs("s"))
	ts.Check(err)
	ts.Defer(func() { ts.Check(stop()) })
}

// cmdSilent makes a socket `s` on which nobody answers, as when the daemon is stopped.
func cmdSilent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: silent")
	}
	ln, err := net.Listen("unix", ts.MkAbs("s"))
	ts.Check(err)
	ts.Defer(func() { ts.Check(ln.Close()) })
}

// cmdExits runs a program and wants its exit status.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}
