package k8swatch

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sameBootWithin is how much two processes of one boot may differ about its time,
// because the clock was adjusted in between.
const sameBootWithin = 5 * time.Second

// bootTime is when this kernel started, by the clock of now; zero if it is not
// known. It does not use /proc, because the systemd unit hides all but processes
// there.
func bootTime() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}

// processOf identifies a process: by the boot of its host, and by a random text.
func processOf(boot time.Time, text string) string {
	if boot.IsZero() {
		return text
	}
	return strconv.FormatInt(boot.Unix(), 10) + "/" + text
}

// sameBoot reports whether two processes of one name certainly ran in the same
// boot of the same host. A copy of a host was started at another time. // I22
func sameBoot(a, b string) bool {
	x, okX := bootOf(a)
	y, okY := bootOf(b)
	return okX && okY && x.Sub(y).Abs() <= sameBootWithin
}

func bootOf(process string) (time.Time, bool) {
	text, _, ok := strings.Cut(process, "/")
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), ok && err == nil
}
