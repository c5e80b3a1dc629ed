package fenceagent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/fenced/fenced/internal/bmc"
)

// ours are the parameters that fenced gives by itself, or must not be given.
var ours = map[string]string{
	"action": "fenced says what to do", "option": "fenced says what to do",
	"ip": "write it as the address", "ipaddr": "write it as the address", "ipport": "write it with the address",
	"username": "write it as username", "login": "write it as username",
	"password": "write it as passwordFile", "passwd": "write it as passwordFile",
	"port_as_ip":      "it would make the plug another address",
	"network_fencing": "it cuts the host's network, and the host runs on",
	"debug":           "it would write passwords to a file", "debug_file": "it would write passwords to a file",
}

// input is what the agent reads on stdin for one action.
func input(d bmc.Device, m metadata, action string) ([]byte, error) {
	values := map[string]string{"action": action}
	if err := own(d, m, values); err != nil {
		return nil, err
	}
	if err := given(d, m, values); err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := fits(values[name]); err != nil {
			return nil, fmt.Errorf("parameter %s of %s %w", name, d.Agent, err)
		}
		b.WriteString(name + "=" + values[name] + "\n")
	}
	return []byte(b.String()), nil
}

// own adds the address and the account, under the names that the agent uses.
func own(d bmc.Device, m metadata, values map[string]string) error {
	var p string
	if d.Endpoint.Port != 0 {
		p = strconv.Itoa(d.Endpoint.Port)
	}
	for _, o := range []struct {
		what, value string
		names       []string
	}{
		{"address", d.Endpoint.Host, []string{"ip", "ipaddr"}},
		{"port", p, []string{"ipport"}},
		{"user name", d.Username, []string{"username", "login"}},
		{"password", d.Password.Reveal(), []string{"password", "passwd"}},
	} {
		if o.value == "" {
			continue
		}
		name, ok := m.named(o.names...)
		if !ok {
			return fmt.Errorf("%s takes no %s; leave it out", d.Agent, o.what)
		}
		values[name] = o.value
	}
	return nil
}

// given adds the parameters of the administrator, those that are secret among them.
func given(d bmc.Device, m metadata, values map[string]string) error {
	all := maps.Clone(d.Parameters)
	if all == nil {
		all = map[string]string{}
	}
	for name, secret := range d.SecretParameters {
		all[name] = secret.Reveal()
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := allowed(d, m, name, all[name]); err != nil {
			return err
		}
		values[name] = all[name]
	}
	if err := onePlug(d, m); err != nil {
		return err
	}
	return listable(d, m)
}

// allowed refuses a parameter that the agent does not know, or that would change
// what fenced asks it. Agents take dashes and underscores for the same.
func allowed(d bmc.Device, m metadata, name, value string) error {
	plain := strings.ReplaceAll(name, "-", "_")
	if why, ok := ours[plain]; ok {
		return fmt.Errorf("parameter %s of %s cannot be set: %s", name, d.Agent, why)
	}
	if plain == "missing_as_off" && !slices.Contains([]string{"0", "no", "off", "false"}, strings.ToLower(value)) {
		return fmt.Errorf("parameter %s of %s reports off for an outlet that does not exist: that proves nothing", name, d.Agent) // I1
	}
	if _, ok := m.parameter(name); ok {
		return nil
	}
	if near := m.near(name); len(near) > 0 {
		return fmt.Errorf("%s has no parameter %q; near are %s", d.Agent, name, strings.Join(near, ", "))
	}
	return fmt.Errorf("%s has no parameter %q; `%s -o metadata` lists them", d.Agent, name, d.Agent)
}

// onePlug refuses several outlets in one device: which of them two hosts share
// could not be told. // I9
func onePlug(d bmc.Device, m metadata) error {
	plug, port := d.Parameters["plug"], d.Parameters["port"]
	if plug != "" && port != "" {
		return fmt.Errorf("plug and port of %s are the same parameter; keep plug", d.Agent)
	}
	separator, ok := d.Parameters["plug_separator"]
	if p, known := m.parameter("plug_separator"); known && !ok {
		separator = p.Content.Default
	}
	if plug += port; separator != "" && strings.Contains(plug, separator) {
		return fmt.Errorf("plug %q of %s names several outlets; write each as a device of the level "+
			"(or set plug_separator, when the %q belongs to a name)", plug, d.Agent, separator)
	}
	return nil
}

// fits refuses what a line of name=value cannot carry as it is: agents cut off
// spaces and one pair of quotes.
func fits(value string) error {
	switch {
	case strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("holds a control character")
	case value != strings.TrimSpace(value):
		return fmt.Errorf("begins or ends with a space")
	case len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"':
		return fmt.Errorf("stands in quotes, which the agent would cut off")
	}
	return nil
}
