package bmclib

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/bmc-toolbox/bmclib/v2/providers/asrockrack"

	"github.com/fenced/fenced/internal/bmc"
)

// inspect reads the identity in an answer, and checks that a power state that the
// provider will use is really in it.
func (g *guard) inspect(path string, body []byte) error {
	if repeated, ok := errors.AsType[*bmc.RepeatedError](bmc.CheckNames(body)); ok {
		return &kindError{bmc.KindProtocol, repeated} // the provider would take the last value // I1
	}
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

// hasPowerStatus returns an error if power_status is missing: the provider reads
// a missing one as 0, which is off. // I1
func hasPowerStatus(body []byte) error {
	var chassis struct {
		PowerStatus *int `json:"power_status"`
	}
	if err := json.Unmarshal(body, &chassis); err != nil || chassis.PowerStatus == nil {
		return &kindError{bmc.KindProtocol, errors.New("the answer about the chassis has no power status")}
	}
	return nil
}

// systemIdentity returns the identity in a Redfish ComputerSystem.
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

// identityError returns an error if another machine answers than the one that was
// read. A device that reports no identity cannot be compared; it is used only if
// it was enrolled.
func identityError(read, answers bmc.Identity) error {
	if read.Equal(answers) {
		return nil
	}
	return &kindError{bmc.KindIdentity, fmt.Errorf("system %q (serial %q) was read, but %q (serial %q) answers now; no command was sent",
		read.UUID, read.Serial, answers.UUID, answers.Serial)}
}
