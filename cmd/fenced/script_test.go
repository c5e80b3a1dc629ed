package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the scripts run this very program as a process. Files are made with the
// modes that the tests expect, whatever the umask of who runs them.
func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	testscript.Main(m, map[string]func(){
		"fenced": func() { os.Exit(runDaemon(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=10") // the race detector would let each fenced sleep for 1 s at its end
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": exitStatus,
		},
	})
}

// exitStatus runs a program and wants the exit status named first:
// `status 78 fenced -t --config f.yaml`.
func exitStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE PROGRAM ARGS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = err.Error()
		if len(got) > len("exit status ") {
			got = got[len("exit status "):]
		}
	}
	if got != args[0] {
		ts.Fatalf("%v: exit status %s, want %s", args[1:], got, args[0])
	}
}
