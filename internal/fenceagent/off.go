package fenceagent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// status interprets a status that ended with 0 or 2. The exit status and the
// output must agree. Only the output for On may be missing. // I1
func status(end result) (bmc.PowerState, string) {
	words := statusLine(end.stdout)
	raw := words
	if raw == "" {
		raw = fmt.Sprintf("exit status %d, no status in the output", end.code)
	}
	raw = bmc.Printable(raw, maxRaw)
	switch {
	case end.code == 2 && words == "STATUS: OFF":
		return bmc.Off, raw
	case end.code == 0 && (words == "" || words == "STATUS: ON"):
		return bmc.On, raw
	}
	return bmc.Unknown, raw
}

// statusLine returns the line "Status: ..." of the output, in capitals. If there
// are two, it returns both, which matches neither state.
func statusLine(stdout []byte) string {
	var words []string
	for line := range strings.Lines(string(stdout)) {
		if s := strings.ToUpper(strings.TrimSpace(line)); strings.HasPrefix(s, "STATUS:") {
			words = append(words, s)
		}
	}
	return strings.Join(words, "; ")
}

// listAge is how long a list is valid. A session may stay open for days, and the
// outlet may be renumbered in the meantime.
const listAge = time.Minute

// outlet is what a device switches, under each name that the agent's list may
// use.
type outlet []string

// outlets returns the outlets that the parameters name. Agents that select
// machines by uuid may also take a plug; then both must exist.
func outlets(d bmc.Device) []outlet {
	var all []outlet
	if plug := cmp.Or(d.Parameters["plug"], d.Parameters["port"]); plug != "" {
		o := outlet{plug}
		if s := d.Parameters["switch"]; s != "" { // a chain of devices
			o = append(o, s+":"+plug)
		}
		all = append(all, o)
	}
	if uuid := d.Parameters["uuid"]; uuid != "" {
		all = append(all, outlet{uuid})
	}
	return all
}

// checkListable rejects a device whose Off could never be trusted: one of several
// outlets, if nothing distinguishes an outlet that is off from one that does not
// exist. // I1
func checkListable(d bmc.Device, m metadata) error {
	for _, name := range []string{"plug", "port", "switch", "uuid"} {
		if _, ok := d.SecretParameters[name]; ok {
			return fmt.Errorf("parameter %s of %s selects what is switched and is not secret; set it in parameters", name, d.Agent)
		}
	}
	_, lists := m.action("list")
	switch all := outlets(d); {
	case lists && len(all) == 0:
		return fmt.Errorf("%s switches one of several outlets; set the parameter plug", d.Agent)
	case !lists && len(all) > 0:
		return fmt.Errorf("%s cannot list its outlets, so it may report off for an outlet that does not exist; "+
			"leave %q out if it switches one machine, else use another agent", d.Agent, all[0][0])
	}
	return nil
}

// confirmOff turns an Off into Unknown if the agent does not list the outlet.
// Agents treat every answer except the one for on as off, even the one that the
// outlet does not exist. // I1
func (c *Client) confirmOff(ctx context.Context, r *bmc.Reading) error {
	all := outlets(c.device)
	_, m, err := c.agent(ctx)
	if err != nil {
		return err
	}
	_, showsState := m.offFilter()
	if len(all) == 0 || !showsState && time.Since(c.listedAt) < listAge {
		return nil
	}
	asked := time.Now()
	end, _, err := c.act(ctx, "list")
	if err == nil && end.code != 0 {
		err = c.agentError(end)
	}
	if err != nil {
		return fmt.Errorf("the agent reports off, but its list of outlets cannot be read: %w", err)
	}
	for _, o := range all {
		if !o.isListed(end.stdout, separator(c.device, m)) {
			r.State, r.Raw = bmc.Unknown, bmc.Printable("outlet "+o[0]+" is not listed", maxRaw)
			if showsState {
				r.Raw = bmc.Printable("the agent reports off, and does not list as off "+o[0], maxRaw)
			}
			return nil
		}
	}
	c.listedAt = asked
	return nil
}

// separator is the text between an outlet and its alias.
func separator(d bmc.Device, m metadata) string {
	p, _ := m.parameter("separator")
	return cmp.Or(d.Parameters["separator"], p.Content.Default, ",")
}

// isListed reports whether exactly one line of a list is about the outlet. A line
// without a separator is a message.
func (o outlet) isListed(list []byte, separator string) bool {
	n := 0
	for line := range strings.Lines(string(list)) {
		plug, alias, ok := strings.Cut(strings.TrimSpace(line), separator)
		plug, alias = strings.TrimSpace(plug), strings.TrimSpace(alias)
		if ok && (slices.Contains(o, plug) || alias == o[0] && !isPosition(alias)) {
			n++
		}
	}
	return n == 1
}

// isPosition reports whether an agent would interpret a name as the position of
// an outlet, so that an alias of another outlet does not match.
func isPosition(name string) bool { return strings.Trim(name, "0123456789.:/-") == "" }

// offFilter makes the list of an agent one of what is off.
type offFilter struct {
	parameter string
	value     func(plug string) string
}

// offFilters are agents that report off for a suspended machine, and whose list can be that
// of the machines that are off. It is a list of the one machine, because vCenter refuses one
// of too many. It shows a state, so it is read for every Off, and not kept. // I1
var offFilters = map[string]offFilter{
	"fence_vmware_rest": {"filter", func(plug string) string {
		return "filter.names=" + strings.ReplaceAll(url.QueryEscape(plug), "+", "%20") + "&filter.power_states=POWERED_OFF"
	}},
}

// offFilter is that of the agent, under whatever name.
func (m metadata) offFilter() (offFilter, bool) {
	for _, name := range m.names {
		if f, ok := offFilters[name]; ok {
			return f, true
		}
	}
	return offFilter{}, false
}

// addOffFilter makes a list one of what is off, if the agent needs that.
func addOffFilter(d bmc.Device, m metadata, action string, values map[string]string) {
	if f, ok := m.offFilter(); ok && action == "list" {
		values[f.parameter] = f.value(cmp.Or(d.Parameters["plug"], d.Parameters["port"]))
	}
}

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

// rawState is that of the agent, under whatever name.
func (m metadata) rawState() (rawState, bool) {
	for _, name := range m.names {
		if s, ok := rawStates[name]; ok {
			return s, true
		}
	}
	return rawState{}, false
}

// snmpStates are agents over SNMP that know the value for on and report off for every other one: for the outlet that an
// APC PDU cannot determine (4), for one of an Emerson PDU that comes on after a delay (3), for a blade that sleeps (3). They
// send nothing to such a one either. Here are the values of each that are on or off. // I1
var snmpStates = map[string][2]string{
	"fence_apc_snmp": {"1", "2"}, "fence_tripplite_snmp": {"1", "2"}, "fence_emerson": {"1", "2"},
	"fence_ibmblade": {"0", "1"}, "fence_ipdu": {"0", "1"}, "fence_intelmodular": {"0", "2"},
}

// strangeState begins what an agent in snmpStates says of another value.
const strangeState = "neither on nor off: "

// addStrictGet has the agent read a state with a shell around its snmpget, which fails on every other value. Only a reading
// needs that: On is sent to a host whatever its state. // I1, I20
func addStrictGet(m metadata, action string, values map[string]string) {
	for _, name := range m.names {
		of, ok := snmpStates[name]
		if !ok || action != "status" {
			continue
		}
		p, _ := m.parameter("snmpget_path")
		tool := cmp.Or(values["snmpget_path"], p.Content.Default, "snmpget")
		values["snmpget_path"] = fmt.Sprintf(`/bin/sh -c 'o=$("$0" "$@") || { c=$?; printf "%%s\n" "$o"; exit $c; }; set -f; set -- $(printf "%%s\n" "$o" | tail -n 1); `+
			`case "$# $2" in "2 %s"|"2 %s") echo "$*";; *) [ $# -eq 0 ] || shift; echo "%s$*"; exit 1;; esac' %s`, of[0], of[1], strangeState, tool)
		return
	}
}

// strange returns what a device said in place of on or off.
func strange(end result) (raw string, ok bool) {
	_, said, ok := strings.Cut(string(end.stderr), strangeState)
	said, _, _ = strings.Cut(said, "\n")
	return bmc.Printable(strangeState+strings.TrimSpace(said), maxRaw), ok
}

// addDebug asks for the debug output of an agent in rawStates. That output would hold the
// password, and agents also write it to the system log. // I25
func addDebug(d bmc.Device, m metadata, action string, values map[string]string) error {
	if _, ok := m.rawState(); !ok {
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
func confirmRawState(end result, r *bmc.Reading) {
	want, ok := end.agent.rawState()
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

// nonPowerAgents are agents whose metadata look like the others' and whose off is no power
// state: a note, the silence of somebody, sleep, or a fault. The host keeps running, or goes
// on with all that it had in memory once it is woken: such an agent sends it no off, and its
// on wakes it. // I1
var nonPowerAgents = map[string]string{
	"fence_ack_manual":  "it only asks a human",
	"fence_amt":         "it reports off for a sleeping machine; use fence_amt_ws",
	"fence_cisco_ucs":   "it reports off for a blade that UCS Manager has lost, and for every power state that is not on; use the BMC of the blade",
	"fence_compute":     "it tells OpenStack that a host is down and switches nothing",
	"fence_crosslink":   "it takes a host that does not answer a ping for off",
	"fence_dummy":       "it is for tests and switches a file",
	"fence_evacuate":    "it tells OpenStack to move machines away and switches nothing",
	"fence_ibmz":        "it reports off for a partition that runs in the state degraded or reservation-error, or that its HMC has lost",
	"fence_legacy":      "it runs plugins of another kind, and some of them switch nothing",
	"fence_pcmk":        "it asks Pacemaker to fence and knows no power state",
	"fence_sbd":         "it leaves a message on a disk and reads back the message, not the host's power",
	"fence_skalar":      "it reports off while the hypervisor of the machine does not answer",
	"fence_vmware_soap": "it reports off for a suspended machine; use fence_vmware_rest",
	"fence_watchdog":    "it only waits for the host's watchdog",
}

// checkSwitchesPower rejects the agents known to switch no power, by any of their
// names.
func checkSwitchesPower(names ...string) error {
	for _, n := range names {
		if why, ok := nonPowerAgents[filepath.Base(n)]; ok {
			return unsupported("%s cannot be used as a power level: %s", filepath.Base(n), why)
		}
	}
	return nil
}
