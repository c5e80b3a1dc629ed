package bmclib

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/bmc-toolbox/bmclib/v2/providers/asrockrack"

	"github.com/fenced/fenced/internal/bmc"
)

// look reads along in an answer: who the system is, and whether a state that the
// provider will take from it is really there.
func (g *guard) look(path string, body []byte) error {
	if g.provider == asrockrack.ProviderName {
		if strings.HasSuffix(path, "/api/chassis-status") {
			return hasPowerStatus(body)
		}
		return nil
	}
	if who, ok := systemIdentity(body); ok {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.who = who
	}
	return nil
}

// hasPowerStatus: the provider reads a missing power_status as 0, which is off. // I1
func hasPowerStatus(body []byte) error {
	var chassis struct {
		PowerStatus *int `json:"power_status"`
	}
	if err := json.Unmarshal(body, &chassis); err != nil || chassis.PowerStatus == nil {
		return &kindError{bmc.KindProtocol, errors.New("the answer about the chassis has no power status")}
	}
	return nil
}

// systemIdentity finds who a Redfish ComputerSystem says it is.
func systemIdentity(body []byte) (bmc.Identity, bool) {
	var system struct {
		Type         string `json:"@odata.type"`
		UUID         string
		SerialNumber string
	}
	if json.Unmarshal(body, &system) != nil || !strings.HasPrefix(system.Type, "#ComputerSystem.") {
		return bmc.Identity{}, false
	}
	return bmc.Identity{UUID: bmc.Printable(system.UUID, maxIdentity), Serial: bmc.Printable(system.SerialNumber, maxIdentity)}, true
}

const maxIdentity = 64

// stranger is why a command for the machine that was read is not given to the one
// that answers now. What tells nothing of itself cannot be compared: such a device
// is used only where somebody enrolled it.
func stranger(read, answers bmc.Identity) error {
	if read.Equal(answers) {
		return nil
	}
	return &kindError{bmc.KindIdentity, fmt.Errorf("the system %q (serial %q) was read, and now %q (serial %q) answers: no command is sent",
		read.UUID, read.Serial, answers.UUID, answers.Serial)}
}
