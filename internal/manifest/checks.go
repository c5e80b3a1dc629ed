package manifest

import (
	"strings"

	"github.com/fenced/fenced/internal/policy"
)

// checkKind is how checks of one kind and API version are read.
type checkKind struct {
	decode func(fields map[string]any) policy.Check
	// schema has the keys that a file in policies.d may have; nil for fenced's own kinds, whose decoder
	// knows them.
	schema schema
}

// checkKinds are the kinds of checks that this version evaluates, by API version and kind.
var checkKinds = map[[2]string]checkKind{
	{policy.OpenShiftMachineAPI, policy.MachineHealthCheckKind}: {MachineHealthCheck, checkSchema},
	{policy.ClusterAPIV1Beta1, policy.MachineHealthCheckKind}:   {MachineHealthCheck, clusterCheckV1Beta1},
	{policy.ClusterAPIV1Beta2, policy.MachineHealthCheckKind}:   {MachineHealthCheck, clusterCheckV1Beta2},
	{policy.Medik8sAPI, policy.NodeHealthCheckKind}:             {NodeHealthCheck, nodeCheckSchema},
	{policy.FencedAPI, policy.FencePolicyKind}:                  {decode: FencePolicy},
}

// isOtherVersion reports whether a group has checks of a kind in some API version.
func isOtherVersion(group, kind string) bool {
	for known := range checkKinds {
		if known[1] == kind && strings.HasPrefix(known[0], group+"/") {
			return true
		}
	}
	return false
}

// decodeCheck decodes a check. Of one that this version does not evaluate it reads only the identity.
func decodeCheck(i id, fields map[string]any) policy.Check {
	if known, ok := checkKinds[[2]string{i.apiVersion, i.kind}]; ok {
		return known.decode(fields)
	}
	return decodeUnsupported(fields)
}
