package manifest

// clusterSelectorSchema and the two below are the keys of a Cluster API
// MachineHealthCheck in a file; see checkSchema.
var clusterSelectorSchema = schema{
	"matchLabels":      nil,
	"matchExpressions": {"key": nil, "operator": nil, "values": nil},
}

var clusterCheckV1Beta1 = schema{
	"apiVersion": nil, "kind": nil, "metadata": nil, "status": nil,
	"spec": {
		"clusterName":                nil,
		"selector":                   clusterSelectorSchema,
		"unhealthyConditions":        {"type": nil, "status": nil, "timeout": nil},
		"unhealthyMachineConditions": {"type": nil, "status": nil, "timeout": nil},
		"maxUnhealthy":               nil,
		"unhealthyRange":             nil,
		"nodeStartupTimeout":         nil,
		"remediationTemplate": {
			"apiVersion": nil, "kind": nil, "namespace": nil, "name": nil,
			"uid": nil, "resourceVersion": nil, "fieldPath": nil,
		},
	},
}

var clusterCheckV1Beta2 = schema{
	"apiVersion": nil, "kind": nil, "metadata": nil, "status": nil,
	"spec": {
		"clusterName": nil,
		"selector":    clusterSelectorSchema,
		"checks": {
			"unhealthyNodeConditions":    {"type": nil, "status": nil, "timeoutSeconds": nil},
			"unhealthyMachineConditions": {"type": nil, "status": nil, "timeoutSeconds": nil},
			"nodeStartupTimeoutSeconds":  nil,
		},
		"remediation": {
			"triggerIf":   {"unhealthyLessThanOrEqualTo": nil, "unhealthyInRange": nil},
			"templateRef": {"apiVersion": nil, "kind": nil, "name": nil},
		},
	},
}
