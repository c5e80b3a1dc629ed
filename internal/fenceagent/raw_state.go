package fenceagent

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// rawState is how to find what a device itself said in the debug output of an agent.
type rawState struct {
	line *regexp.Regexp // one group: the state
	off  string         // the one state that is off
}

// rawStates are agents that report off for states in which the host may run.
//
// fence_lpar knows four states that are on, and reports any other as off: among them are
// "Not Available", the state of every partition while the HMC has lost the managed system,
// and "Migrating - Running". // I1
var rawStates = map[string]rawState{
	"fence_lpar": {regexp.MustCompile(`(?m),state=([^,\r\n]*),`), "Not Activated"},
}

// addDebug asks for the debug output of an agent in rawStates. That output would hold the
// password, and agents also write it to the system log. // I25
func addDebug(d bmc.Device, action string, values map[string]string) error {
	if _, ok := rawStates[d.Agent]; !ok {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if strings.HasPrefix(name, "passw") {
			return fmt.Errorf("%s tells an unknown state from off only in its debug output, which would show the %s; "+
				"log in with a key without a passphrase: set the parameter identity_file, and no password", d.Agent, name)
		}
	}
	if action == "status" {
		values["verbose"] = "1"
	}
	return nil
}

// confirmRawState turns an Off into Unknown if the device itself said something else, or
// said it twice differently.
func (c *Client) confirmRawState(end result, r *bmc.Reading) {
	want, ok := rawStates[c.device.Agent]
	if !ok {
		return
	}
	states := want.line.FindAllSubmatch(end.stderr, -1)
	if len(states) == 0 {
		r.State, r.Raw = bmc.Unknown, "the agent reports off and does not show the state of the device"
	}
	for _, s := range states {
		if string(s[1]) != want.off {
			r.State, r.Raw = bmc.Unknown, bmc.Printable("the agent reports off for the state "+string(s[1]), maxRaw)
		}
	}
}
