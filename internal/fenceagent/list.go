package fenceagent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

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
	if len(all) == 0 || time.Since(c.listedAt) < listAge {
		return nil
	}
	_, m, err := c.agent(ctx)
	if err != nil {
		return err
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
