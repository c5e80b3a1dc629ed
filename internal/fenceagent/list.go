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

// listAge is how long a list is believed: a session may stay open for days, and
// the outlet be renumbered meanwhile.
const listAge = time.Minute

// outlet is what a device switches, under each name that the agent's list may have
// for it.
type outlet []string

// outlets are those that the parameters name. Agents that know machines by uuid may
// take a plug as well: each must be there.
func outlets(d bmc.Device) []outlet {
	var all []outlet
	if plug := cmp.Or(d.Parameters["plug"], d.Parameters["port"]); plug != "" {
		o := outlet{plug}
		if s := d.Parameters["switch"]; s != "" { // in a chain of devices
			o = append(o, s+":"+plug)
		}
		all = append(all, o)
	}
	if uuid := d.Parameters["uuid"]; uuid != "" {
		all = append(all, outlet{uuid})
	}
	return all
}

// listable refuses a device whose Off could never be believed: one outlet among
// several, where nothing tells an outlet that is off from one that is not there. // I1
func listable(d bmc.Device, m metadata) error {
	for _, name := range []string{"plug", "port", "switch", "uuid"} {
		if _, ok := d.SecretParameters[name]; ok {
			return fmt.Errorf("parameter %s of %s chooses what is switched, and is no secret; write it among the parameters", name, d.Agent)
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

// confirm makes Unknown of an Off of an outlet that the agent does not list. Agents
// take any answer but that for on as off, also the one that there is no such
// outlet. // I1
func (c *Client) confirm(ctx context.Context, r *bmc.Reading) error {
	all := outlets(c.device)
	if len(all) == 0 || time.Since(c.listed) < listAge {
		return nil
	}
	_, m, err := c.agent(ctx)
	if err != nil {
		return err
	}
	asked := time.Now()
	end, _, err := c.act(ctx, "list")
	if err == nil && end.code != 0 {
		err = c.complain(end)
	}
	if err != nil {
		return fmt.Errorf("the agent reports off, but its list of outlets cannot be read: %w", err)
	}
	for _, o := range all {
		if !o.in(end.stdout, separator(c.device, m)) {
			r.State, r.Raw = bmc.Unknown, bmc.Printable("outlet "+o[0]+" is not listed", maxRaw)
			return nil
		}
	}
	c.listed = asked
	return nil
}

// separator is what stands between an outlet and its alias.
func separator(d bmc.Device, m metadata) string {
	p, _ := m.parameter("separator")
	return cmp.Or(d.Parameters["separator"], p.Content.Default, ",")
}

// in says whether exactly one line of a list is about the outlet. Whatever has no
// separator is said to people.
func (o outlet) in(list []byte, separator string) bool {
	n := 0
	for line := range strings.Lines(string(list)) {
		plug, alias, ok := strings.Cut(strings.TrimSpace(line), separator)
		plug, alias = strings.TrimSpace(plug), strings.TrimSpace(alias)
		if ok && (slices.Contains(o, plug) || alias == o[0] && !position(alias)) {
			n++
		}
	}
	return n == 1
}

// position says whether an agent would take a name for the place of an outlet, so
// that another one's alias is no match.
func position(name string) bool { return strings.Trim(name, "0123456789.:/-") == "" }
