package bmc

import (
	"fmt"
	"strings"
)

// needed are the agents that choose a machine by its position when they are not
// told which, and the parameter that tells. // I8
var needed = map[string]string{"fence_redfish": "systems_uri"}

// plugSeparator is what parts a list of plugs for an agent that is told no other.
const plugSeparator = ","

// Refused says what is wrong with a device whatever stands behind its address, so
// that it shows before anything is asked: which key of its entry, and why. Both
// are empty when nothing is. What a BMC or the agent itself must be asked for is
// left to the driver.
func (d Device) Refused() (key, why string) {
	switch d.Driver {
	case DriverBMCLib:
		return d.refusedByBMCLib()
	case DriverFenceAgent:
		return d.refusedByAgent()
	}
	return "", ""
}

func (d Device) refusedByBMCLib() (key, why string) {
	standard := 443
	if d.Endpoint.Plain {
		standard = 80
	}
	switch {
	case d.TLS.PinSHA256 != "":
		return "tls.pinSHA256", "driver bmclib does not check pinSHA256; give the BMC's certificate or its CA as tls.ca, or use the native driver"
	case d.Provider == "openbmc" && d.Endpoint.Port != standard:
		// It looks whether the BMC is its own at the standard port, whatever it is given.
		return "address", fmt.Sprintf("provider openbmc asks only port %d, not %d; use provider gofish or the native driver", standard, d.Endpoint.Port)
	}
	return "", ""
}

func (d Device) refusedByAgent() (key, why string) {
	all := d.Parameters
	if must := needed[d.Agent]; must != "" && all[must] == "" && all[strings.ReplaceAll(must, "_", "-")] == "" {
		return "parameters", fmt.Sprintf("%s without %s takes a machine by its position; set the parameter %s", d.Agent, must, must)
	}
	for _, name := range []string{"plug", "port"} {
		if why := d.severalPlugs(all[name]); why != "" {
			return "parameters." + name, why
		}
	}
	return "", ""
}

// severalPlugs refuses several outlets in one device: which of them two hosts share
// could not be told. // I9
func (d Device) severalPlugs(plug string) string {
	separator, ok := d.Parameters["plug_separator"]
	if !ok {
		separator = plugSeparator
	}
	if separator == "" || !strings.Contains(plug, separator) {
		return ""
	}
	return fmt.Sprintf("plug %q of %s names several outlets; write each as a device of the level "+
		"(or set plug_separator, when the %q belongs to a name)", plug, d.Agent, separator)
}
