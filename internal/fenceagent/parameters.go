package fenceagent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/fenced/fenced/internal/bmc"
)

// reserved are the parameters that fenced sets itself, or that must not be set.
var reserved = map[string]string{
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
	if err := addAddress(d, m, values); err != nil {
		return nil, err
	}
	if err := addConfigured(d, m, values); err != nil {
		return nil, err
	}
	if err := addDebug(d, m, action, values); err != nil {
		return nil, err
	}
	addOffFilter(d, m, action, values)
	addStrictGet(m, action, values)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := checkValue(values[name]); err != nil {
			return nil, fmt.Errorf("parameter %s of %s %w", name, d.Agent, err)
		}
		b.WriteString(name + "=" + values[name] + "\n")
	}
	return []byte(b.String()), nil
}

// addAddress adds the address and the account, under the names that the agent
// uses.
func addAddress(d bmc.Device, m metadata, values map[string]string) error {
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
		name, ok := m.firstKnown(o.names...)
		if !ok {
			return fmt.Errorf("%s takes no %s; leave it out", d.Agent, o.what)
		}
		values[name] = o.value
	}
	return nil
}

// addConfigured adds the administrator's parameters, including the secret ones.
func addConfigured(d bmc.Device, m metadata, values map[string]string) error {
	all := maps.Clone(d.Parameters)
	if all == nil {
		all = map[string]string{}
	}
	for name, secret := range d.SecretParameters {
		all[name] = secret.Reveal()
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := checkParameter(d, m, name, all[name]); err != nil {
			return err
		}
		values[name] = all[name]
	}
	if err := onePlug(d, m); err != nil {
		return err
	}
	return checkListable(d, m)
}

// checkParameter rejects a parameter that the agent does not know, or that would
// change the action. Agents treat dashes and underscores as equal.
func checkParameter(d bmc.Device, m metadata, name, value string) error {
	plain := strings.ReplaceAll(name, "-", "_")
	if why, ok := reserved[plain]; ok {
		return fmt.Errorf("parameter %s of %s cannot be set: %s", name, d.Agent, why)
	}
	if plain == "missing_as_off" && !slices.Contains([]string{"0", "no", "off", "false"}, strings.ToLower(value)) {
		return fmt.Errorf("parameter %s of %s reports off for an outlet that does not exist: that proves nothing", name, d.Agent) // I1
	}
	if _, ok := m.parameter(name); ok {
		return nil
	}
	if near := m.similar(name); len(near) > 0 {
		return fmt.Errorf("%s has no parameter %q; did you mean %s", d.Agent, name, strings.Join(near, ", "))
	}
	return fmt.Errorf("%s has no parameter %q; `%s -o metadata` lists them", d.Agent, name, d.Agent)
}

// onePlug rejects several outlets in one device, with the separator that the agent itself
// takes by default. // I9
func onePlug(d bmc.Device, m metadata) error {
	plug, port := d.Parameters["plug"], d.Parameters["port"]
	if plug != "" && port != "" {
		return fmt.Errorf("plug and port of %s are the same parameter; keep plug", d.Agent)
	}
	separator, ok := d.Parameters["plug_separator"]
	if p, known := m.parameter("plug_separator"); known && !ok {
		separator = p.Content.Default
	}
	if why := bmc.SeveralPlugs(d.Agent, plug+port, separator); why != "" {
		return errors.New(why)
	}
	return nil
}

// checkValue rejects a value that a line of name=value cannot carry unchanged:
// agents strip spaces and one pair of quotes.
func checkValue(value string) error {
	switch {
	case strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("contains a control character")
	case value != strings.TrimSpace(value):
		return fmt.Errorf("starts or ends with a space")
	case len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"':
		return fmt.Errorf("is in quotes, which the agent would strip")
	}
	return nil
}
