package request

import (
	"cmp"
	"strings"

	"github.com/fenced/fenced/internal/remediate"
)

// Holder is what the annotation beside a finalizer says of the run for which it was set, for the case that
// the run is lost with the state: its ID and the system UUID of the machine that it may have switched off.
func Holder(r remediate.Run) string {
	return r.ID + "/" + cmp.Or(r.Target.SystemUUID, r.Target.ReportedUUID)
}

// ParseHolder reads what Holder wrote. An older finalizer names no machine.
func ParseHolder(text string) (run, machine string) {
	run, machine, _ = strings.Cut(text, "/")
	return run, machine
}
