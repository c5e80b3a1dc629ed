package fenceagent

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// metadata is what an agent reports about itself.
type metadata struct {
	Name       string      `xml:"name,attr"`
	Version    string      `xml:"version,attr"`
	Parameters []parameter `xml:"parameters>parameter"`
	Actions    []action    `xml:"actions>action"`
}

type parameter struct {
	Name    string `xml:"name,attr"`
	Content struct {
		Default string `xml:"default,attr"`
	} `xml:"content"`
}

type action struct {
	Name      string `xml:"name,attr"`
	Automatic string `xml:"automatic,attr"`
}

// decode parses the output of -o metadata. It rejects an agent that does not
// switch power or does not report its state.
func decode(text []byte) (metadata, error) {
	var doc struct {
		XMLName xml.Name `xml:"resource-agent"`
		metadata
	}
	if err := xml.Unmarshal(text, &doc); err != nil {
		return metadata{}, fmt.Errorf("decode the agent's metadata: %w", err)
	}
	m := doc.metadata
	for _, need := range []string{"on", "off", "status"} {
		if _, ok := m.action(need); !ok {
			return metadata{}, fmt.Errorf("the agent has no action %q: it cannot be used as a power level", need)
		}
	}
	// Agents that disconnect a node from a network or a disk have no reboot action,
	// or connect it again automatically. The host keeps running: their off proves
	// nothing. // I1
	on, _ := m.action("on")
	if _, reboots := m.action("reboot"); !reboots || on.Automatic == "1" {
		return metadata{}, fmt.Errorf("the agent fences network or storage, not power; it cannot prove that a host is off")
	}
	return m, nil
}

func (m metadata) action(name string) (action, bool) {
	for _, a := range m.Actions {
		if a.Name == name {
			return a, true
		}
	}
	return action{}, false
}

func (m metadata) parameter(name string) (parameter, bool) {
	for _, p := range m.Parameters {
		if p.Name == name {
			return p, true
		}
	}
	return parameter{}, false
}

// firstKnown returns the first of names that the agent supports: a parameter's
// name and its older one.
func (m metadata) firstKnown(names ...string) (string, bool) {
	for _, n := range names {
		if _, ok := m.parameter(n); ok {
			return n, true
		}
	}
	return "", false
}

// similar returns the names that may have been meant by name.
func (m metadata) similar(name string) []string {
	var near []string
	plain := strings.NewReplacer("-", "", "_", "")
	for _, p := range m.Parameters {
		a, b := plain.Replace(strings.ToLower(name)), plain.Replace(p.Name)
		if a == b || (len(a) > 2 && strings.Contains(b, a)) || (len(b) > 2 && strings.Contains(a, b)) {
			near = append(near, p.Name)
		}
	}
	return near
}
