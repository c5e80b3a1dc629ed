package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/policy"
)

// schema lists the keys that a mapping may have. A nil schema means that the
// value is not checked; a list has the schema of its items.
type schema map[string]schema

// schemas are those of the kinds that an API server knows.
var schemas = map[[2]string]schema{
	{policy.OpenShiftMachineAPI, policy.MachineHealthCheckKind}: checkSchema,
	{policy.ClusterAPIV1Beta1, policy.MachineHealthCheckKind}:   clusterCheckV1Beta1,
	{policy.ClusterAPIV1Beta2, policy.MachineHealthCheckKind}:   clusterCheckV1Beta2,
	{policy.Medik8sAPI, policy.NodeHealthCheckKind}:             nodeCheckSchema,
}

// checkSchema is the schema of an OpenShift MachineHealthCheck. What the API
// server writes (metadata, status) is not checked, so that a check can be saved
// from a cluster unchanged.
var checkSchema = schema{
	"apiVersion": nil, "kind": nil, "metadata": nil, "status": nil,
	"spec": {
		"selector": {
			"matchLabels":      nil,
			"matchExpressions": {"key": nil, "operator": nil, "values": nil},
		},
		"unhealthyConditions": {"type": nil, "status": nil, "timeout": nil},
		"maxUnhealthy":        nil,
		"nodeStartupTimeout":  nil,
		"remediationTemplate": {
			"apiVersion": nil, "kind": nil, "namespace": nil, "name": nil,
			"uid": nil, "resourceVersion": nil, "fieldPath": nil,
		},
	},
}

// unknownKeys reports each key of n that is not in the schema.
func (s schema) unknownKeys(n *yaml.Node, path string, report func(line int, path, text string)) {
	n = target(n)
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			s.unknownKeys(item, fmt.Sprintf("%s[%d]", path, i), report)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i]
			at := strings.TrimPrefix(path+"."+name.Value, ".")
			below, ok := s[name.Value]
			if !ok {
				report(name.Line, at, "unknown key")
				continue
			}
			if below != nil {
				below.unknownKeys(n.Content[i+1], at, report)
			}
		}
	}
}

var pathSegment = regexp.MustCompile(`[^.\[\]]+`)

// lineOf finds the line of a field such as "spec.unhealthyConditions[0].type", or
// of its nearest existing parent.
func lineOf(n *yaml.Node, path string) int {
	n = target(n)
	line := n.Line
	for _, name := range pathSegment.FindAllString(path, -1) {
		key, value := descend(n, name)
		if value == nil {
			break
		}
		line, n = key.Line, target(value)
	}
	return line
}

func descend(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n.Kind == yaml.SequenceNode {
		i, err := strconv.Atoi(name)
		if err != nil || i >= len(n.Content) {
			return nil, nil
		}
		return n.Content[i], n.Content[i]
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// target resolves an alias.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
