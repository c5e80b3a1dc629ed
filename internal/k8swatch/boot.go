package k8swatch

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sameBootWithin is by how much two processes of one boot may differ about its time:
// the clock was set a little in between.
const sameBootWithin = 5 * time.Second

// bootTime is when this kernel was started, by the clock of now; zero if that is not
// known. It needs no /proc, of which the unit shows only processes.
func bootTime() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}

// processOf names a process: by the boot that it lives in, and by chance.
func processOf(boot time.Time, text string) string {
	if boot.IsZero() {
		return text
	}
	return strconv.FormatInt(boot.Unix(), 10) + "/" + text
}

// sameBoot says whether two processes of one name surely lived in one boot of one host:
// a copy of a host was started at another time. // I22
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
