// Package wall sets clocks: a time.Time whose wall clock was set, and whose monotonic
// clock was not, as after somebody has changed the time of a host.
package wall

import (
	"fmt"
	"time"
	"unsafe"
)

// Set is t after the wall clock was set by that much, in whole seconds. t must come from
// time.Now.
func Set(t time.Time, by time.Duration) time.Time {
	// The first word of a time.Time with a monotonic reading has seconds above 30 bits of
	// nanoseconds; the second word is the monotonic reading.
	set := t
	*(*uint64)(unsafe.Pointer(&set)) += uint64(by/time.Second) << 30
	if set.Sub(t) != 0 || set.Round(0).Sub(t.Round(0)) != by {
		panic(fmt.Sprintf("wall: this Go lays out times in another way, or %s has no monotonic clock, or %s is no whole seconds", t, by))
	}
	return set
}
