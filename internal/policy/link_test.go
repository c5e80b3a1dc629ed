package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
)

// A Machine and its BareMetalHost must name each other, and the host must run the Machine. // I8
func TestNotLinked(t *testing.T) {
	const annotation = "metal3.io/BareMetalHost"
	for name, c := range map[string]struct {
		change func(*policy.Machine, *policy.Host)
		why    string
	}{
		"both name each other": {func(*policy.Machine, *policy.Host) {}, ""},
		"by the providerID": {func(m *policy.Machine, _ *policy.Host) {
			m.ProviderID, m.Annotations = "baremetalhost:///ns/h/u-1", nil
		}, ""},
		"by both":                {func(m *policy.Machine, _ *policy.Host) { m.ProviderID = "baremetalhost:///ns/h" }, ""},
		"externally provisioned": {func(_ *policy.Machine, h *policy.Host) { h.State = "externally provisioned" }, ""},
		"the Cluster API's": {func(m *policy.Machine, h *policy.Host) {
			m.APIVersion, m.ProviderID, m.Annotations = policy.ClusterAPIV1Beta2, "metal3://ns/h/m3m", nil
			h.ConsumerRef, h.ConsumerKind = "ns/m3m", "Metal3Machine.infrastructure.cluster.x-k8s.io"
		}, ""},
		"a Metal3Machine of an OpenShift Machine": {func(_ *policy.Machine, h *policy.Host) {
			h.ConsumerKind = "Metal3Machine.infrastructure.cluster.x-k8s.io"
		}, "not ns/m"},
		"another host by annotation": {func(m *policy.Machine, _ *policy.Host) {
			m.ProviderID, m.Annotations = "baremetalhost:///ns/h", map[string]string{annotation: "ns/other"}
		}, "names BareMetalHost ns/other"},
		"another host by providerID": {func(m *policy.Machine, _ *policy.Host) { m.ProviderID = "baremetalhost:///ns/other" }, "names BareMetalHost ns/other"},
		"a former host of the name":  {func(m *policy.Machine, _ *policy.Host) { m.ProviderID = "baremetalhost:///ns/h/u-0" }, "not ns/h"},
		"no host":                    {func(m *policy.Machine, _ *policy.Host) { m.Annotations = nil }, "neither a providerID"},
		"no consumer":                {func(_ *policy.Machine, h *policy.Host) { h.ConsumerRef = "" }, "has no consumerRef"},
		"another consumer":           {func(_ *policy.Machine, h *policy.Host) { h.ConsumerRef = "ns/m-9" }, "names ns/m-9"},
		"a consumer of no kind":      {func(_ *policy.Machine, h *policy.Host) { h.ConsumerKind = "" }, "of no kind"},
		"available":                  {func(_ *policy.Machine, h *policy.Host) { h.State = "available" }, "not provisioned"},
		"no status":                  {func(_ *policy.Machine, h *policy.Host) { h.State = "" }, "not provisioned"},
	} {
		m := policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", Annotations: map[string]string{annotation: "ns/h"}}
		h := policy.Host{Namespace: "ns", Name: "h", UID: "u-1", ConsumerRef: "ns/m", ConsumerKind: "Machine.machine.openshift.io", State: "provisioned"}
		c.change(&m, &h)
		if why := policy.NotLinked(&m, &h); c.why == "" {
			assert.Empty(t, why, name)
		} else {
			assert.Contains(t, why, c.why, name)
		}
	}
}
