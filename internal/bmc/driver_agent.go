package bmc

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

func init() {
	declare(Descriptor{
		Name: DriverFenceAgent, Assurance: AssuranceLower,
		ByParameters: true, AccountOptional: true,
		DistinguishHint: "correct the address, or write the plug of each in its parameters",
		text:            agentText,
		part:            agentPart,
		configError:     agentConfigError,
		replaceable:     func(d Device) bool { return agentsOfBMCs.MatchString(d.Agent) },
	})
}

var agentsOfBMCs = regexp.MustCompile(`^fence_(ipmilan|ipmilanplus|redfish|idrac|ilo.*|imm|drac5)$`)

func agentText(d Device) string {
	text := d.Agent + "://"
	if d.Endpoint.Host != "" {
		text += d.Endpoint.HostPort()
	}
	if plug := d.plug(); plug != "" {
		text += "#" + plug
	}
	return text
}

// agentPart is the machine or outlet that an agent switches.
func agentPart(d Device) string {
	all := d.Parameters
	switch {
	case d.isSingleMachine():
		return all["target"]
	case all["systems_uri"] != "" || all["systems-uri"] != "":
		return lastSegment(d.plug())
	}
	return d.plug()
}

// isSingleMachine reports whether the agent switches the one machine behind the
// address, whatever the plug. Over IPMI it may reach others, selected by target.
func (d Device) isSingleMachine() bool {
	switch d.Agent {
	case "fence_idrac", "fence_imm", "fence_amt", "fence_amt_ws", "fence_rsa", "fence_rsb", "fence_alom":
		return true
	case "fence_ilo_moonshot": // a chassis
		return false
	}
	return strings.HasPrefix(d.Agent, "fence_ipmilan") || strings.HasPrefix(d.Agent, "fence_ilo")
}

// plug is the outlet or machine that a fence agent switches. Agents call it plug;
// port is the older name of the parameter. fence_redfish uses systems_uri instead
// of the plug. Some agents select machines by uuid. Some chain several devices
// and write them SWITCH:PLUG.
func (d Device) plug() string {
	all := d.Parameters
	p := cmp.Or(all["systems_uri"], all["systems-uri"], all["plug"], all["port"], all["uuid"])
	if s := all["switch"]; s != "" && p != "" {
		p = s + ":" + p
	}
	return p
}

// requiredParameter names the parameter that selects a machine, for the agents
// that otherwise select one by its position. // I8
var requiredParameter = map[string]string{"fence_redfish": "systems_uri"}

// plugSeparator separates a list of plugs by default.
const plugSeparator = ","

func agentConfigError(d Device) (key, why string) {
	all := d.Parameters
	if must := requiredParameter[d.Agent]; must != "" && all[must] == "" && all[strings.ReplaceAll(must, "_", "-")] == "" {
		return "parameters", fmt.Sprintf("%s without %s selects a machine by its position; set the parameter %s", d.Agent, must, must)
	}
	for _, name := range []string{"plug", "port"} {
		if why := d.severalPlugs(all[name]); why != "" {
			return "parameters." + name, why
		}
	}
	return "", ""
}

// severalPlugs rejects several outlets in one device: a second host that shares
// one of them would not be noticed. // I9
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
