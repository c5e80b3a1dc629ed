// Package asroot is for tests that only root can run.
package asroot

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Need skips a test that only root can run. Where CI=true such a test fails instead, so that CI
// cannot leave it out unnoticed. what says what only root can do.
func Need(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		leaveOut(t, os.Getenv("CI"), "only root can "+what)
	}
}

// Can does what a container may forbid even to root, and treats a failure as Need does.
func Can(t testing.TB, what, program string, args ...string) {
	t.Helper()
	Need(t, what)
	if text, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		leaveOut(t, os.Getenv("CI"), fmt.Sprintf("root cannot %s here: %s: %s", what, err, text))
	}
}

// CanLogIn skips a test where processes have no login UID, or keep theirs for good.
func CanLogIn(t testing.TB) {
	t.Helper()
	Can(t, "log in as another user", "sh", "-c", "echo 4003 >/proc/self/loginuid")
}

func leaveOut(t testing.TB, ci, why string) {
	t.Helper()
	if ci != "true" {
		t.Skip(why)
	} else {
		t.Fatalf("%s: run this test as root, where that is allowed", why)
	}
}
