package sim

import (
	"strings"

	"github.com/fenced/fenced/internal/state"
)

// pinOf is what `fencectl bmc enroll` stores for a host.
func pinOf(h *host) state.Pin {
	e := h.entry()
	var choice []string
	for _, l := range e.Levels {
		for _, d := range l.Devices {
			choice = append(choice, d.Fingerprint())
		}
	}
	return state.Pin{Host: e.Name, Node: h.name, Address: e.Address(), Devices: strings.Join(e.Keys(), "\n"), Choice: strings.Join(choice, "\n"),
		SystemUUID: h.uuid, BMCUUID: h.uuid, At: h.w.began, EnrolledBy: "uid 0"}
}
