// Package asroot is for tests that only root can run.
package asroot

import (
	"os"
	"testing"
)

// Need skips a test that only root can run. Where CI=true such a test fails instead, so that CI
// cannot leave it out unnoticed. what says what only root can do.
func Need(t testing.TB, what string) {
	t.Helper()
	need(t, os.Geteuid(), os.Getenv("CI"), what)
}

func need(t testing.TB, euid int, ci, what string) {
	t.Helper()
	switch {
	case euid == 0:
	case ci == "true":
		t.Fatalf("only root can %s: run this test as root, for example in a container", what)
	default:
		t.Skipf("only root can %s", what)
	}
}
