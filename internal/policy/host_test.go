package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/must"
)

func TestHostFor(t *testing.T) {
	hosts := []policy.Host{
		{Namespace: "ns", Name: "h-1", UID: "u-1"},
		{Namespace: "ns", Name: "h-2", UID: "u-2"},
		{Namespace: "other", Name: "h-1", UID: "u-3"},
		{Namespace: "ns", Name: "h-3", UID: "u-4", OnManagementAPI: true},
	}
	annotated := map[string]string{"metal3.io/BareMetalHost": "ns/h-2"}
	for name, c := range map[string]struct {
		machine policy.Machine
		uid     string // of the host found
		err     string
	}{
		"providerID":                       {policy.Machine{ProviderID: "baremetalhost:///ns/h-1"}, "u-1", ""},
		"providerID with uid":              {policy.Machine{ProviderID: "baremetalhost:///other/h-1/u-3"}, "u-3", ""},
		"providerID wins":                  {policy.Machine{ProviderID: "baremetalhost:///ns/h-1", Annotations: annotated}, "u-1", ""},
		"annotation":                       {policy.Machine{Annotations: annotated}, "u-2", ""},
		"metal3":                           {policy.Machine{ProviderID: "metal3://ns/h-1/m3m"}, "u-1", ""},
		"metal3 by uid":                    {policy.Machine{ProviderID: "metal3://u-3"}, "u-3", ""},
		"metal3 unknown uid":               {policy.Machine{ProviderID: "metal3://u-9"}, "", "BareMetalHost with uid u-9 does not exist"},
		"metal3 two parts":                 {policy.Machine{ProviderID: "metal3://ns/h-1"}, "", "names no BareMetalHost"},
		"metal3 empty":                     {policy.Machine{ProviderID: "metal3://"}, "", "names no BareMetalHost"},
		"host was replaced":                {policy.Machine{ProviderID: "baremetalhost:///ns/h-1/u-9", Annotations: annotated}, "", "has the uid u-1, but the Machine's providerID names the uid u-9"},
		"OpenShift's, a hub's host":        {policy.Machine{APIVersion: policy.OpenShiftMachineAPI, ProviderID: "baremetalhost:///ns/h-3"}, "", "ns/h-3 is on the management API"},
		"OpenShift's, a hub's host by uid": {policy.Machine{APIVersion: policy.OpenShiftMachineAPI, ProviderID: "metal3://u-4"}, "", "is on the management API"},
		"the Cluster API's, on its hub":    {policy.Machine{APIVersion: policy.ClusterAPIV1Beta2, Namespace: "ns", ProviderID: "metal3://ns/h-3/m3m"}, "u-4", ""},
		"host is gone":                     {policy.Machine{ProviderID: "baremetalhost:///ns/h-9"}, "", "ns/h-9 does not exist"},
		"cloud":                            {policy.Machine{ProviderID: "aws:///eu-1/i-1"}, "", `"aws:///eu-1/i-1" names no BareMetalHost`},
		"providerID without name":          {policy.Machine{ProviderID: "baremetalhost:///ns"}, "", "names no BareMetalHost"},
		"providerID with more":             {policy.Machine{ProviderID: "baremetalhost:///ns/a/b/c"}, "", "names no BareMetalHost"},
		"nothing":                          {policy.Machine{}, "", "neither a providerID nor the annotation"},
		"annotation without slash":         {policy.Machine{Annotations: map[string]string{"metal3.io/BareMetalHost": "h-1"}}, "", "is not namespace/name"},
		"annotation with two slash":        {policy.Machine{Annotations: map[string]string{"metal3.io/BareMetalHost": "ns/h-1/x"}}, "", "is not namespace/name"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := policy.HostFor(c.machine, hosts)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.uid, h.UID)
		})
	}
}

// A BareMetalHost that was moved with its cluster has another UID than the providerID of its Machine.
func TestHostForAfterAMove(t *testing.T) { // metal3-io/cluster-api-provider-metal3#70
	const metal3 = "Metal3Machine.infrastructure.cluster.x-k8s.io"
	at := func(namespace, name, uid, consumer, kind string) policy.Host {
		return policy.Host{Namespace: namespace, Name: name, UID: uid, ConsumerRef: consumer, ConsumerKind: kind, State: "provisioned"}
	}
	machine := policy.Machine{APIVersion: policy.ClusterAPIV1Beta1, Namespace: "ns", Name: "m", ProviderID: "metal3://old",
		Infrastructure: policy.InfrastructureRef{Kind: metal3, Name: "m3m"}}
	own := at("ns", "h", "new", "ns/m3m", metal3)
	for name, c := range map[string]struct {
		change func(*policy.Machine)
		hosts  []policy.Host
		uid    string // of the host found
	}{
		"its consumer":                {nil, []policy.Host{at("ns", "o", "x", "ns/other", metal3), own}, "new"},
		"the UID comes first":         {nil, []policy.Host{own, at("ns", "o", "old", "", "")}, "old"},
		"two of one consumer":         {nil, []policy.Host{own, at("ns", "o", "x", "ns/m3m", metal3)}, ""},
		"the consumer of another":     {nil, []policy.Host{at("ns", "h", "new", "ns/other", metal3)}, ""},
		"a consumer of another kind":  {nil, []policy.Host{at("ns", "h", "new", "ns/m3m", "Machine.machine.openshift.io")}, ""},
		"another namespace":           {nil, []policy.Host{at("victim", "h", "new", "ns/m3m", metal3)}, ""},
		"a consumer elsewhere":        {nil, []policy.Host{at("ns", "h", "new", "victim/m3m", metal3)}, ""},
		"of another infrastructure":   {func(m *policy.Machine) { m.Infrastructure.Kind = "Other.group" }, []policy.Host{own}, ""},
		"no infrastructure":           {func(m *policy.Machine) { m.Infrastructure = policy.InfrastructureRef{} }, []policy.Host{own}, ""},
		"a name is never out of date": {func(m *policy.Machine) { m.ProviderID = "metal3://ns/gone/m3m" }, []policy.Host{own}, ""},
	} {
		m := machine
		if c.change != nil {
			c.change(&m)
		}
		h, err := policy.HostFor(m, c.hosts)
		l := policy.NewLedger(policy.Rules{})
		for i := range c.hosts {
			at := &c.hosts[i]
			l.Apply(epoch, changeOf(at))
		}
		indexed, indexedErr := l.HostOf(&m)
		assert.Equal(t, c.uid, h.UID, "%s: %v", name, err)
		assert.Equal(t, c.uid, indexed.UID, "%s: %v", name, indexedErr)
		assert.Equal(t, c.uid == "", err != nil, name)
	}
	assert.Empty(t, policy.NotLinked(&machine, &own))
	other := own
	other.ConsumerRef = "ns/other"
	assert.NotEmpty(t, policy.NotLinked(&machine, &other))
}

// A tenant writes the infrastructureRef of its Machine; the hosts are others'.
func TestConsumerIsBesideItsMachine(t *testing.T) { // I8
	of := func(apiVersion string) string {
		m := must.Do(manifest.Machine(map[string]any{"apiVersion": apiVersion, "kind": "Machine", "metadata": map[string]any{"namespace": "ns", "name": "m"},
			"spec": map[string]any{"infrastructureRef": map[string]any{"apiVersion": "i/v1", "kind": "M", "namespace": "victim", "name": "m3m"}}}))(t)
		return m.Consumer()
	}
	assert.Equal(t, "ns/m3m", of(policy.ClusterAPIV1Beta1))
	assert.Equal(t, "ns/m3m", of(policy.ClusterAPIV1Beta2))
	assert.Equal(t, "ns/m", of(policy.OpenShiftMachineAPI))
}

// A tenant's Machine of the Cluster API names the host of another namespace.
func TestHostForStaysInItsNamespace(t *testing.T) {
	hosts := []policy.Host{{Namespace: "victim", Name: "h", UID: "u-1"}, {Namespace: "tenant", Name: "own", UID: "u-2"}}
	l := policy.NewLedger(policy.Rules{})
	for i := range hosts {
		h := &hosts[i]
		l.Apply(epoch, changeOf(h))
	}
	machine := policy.Machine{APIVersion: policy.ClusterAPIV1Beta1, Namespace: "tenant", Name: "m"}
	for id, want := range map[string]string{
		"metal3://victim/h/x":   "BareMetalHost victim/h is in another namespace than its Machine",
		"metal3://u-1":          "BareMetalHost with uid u-1 does not exist",
		"metal3://tenant/own/m": "",
		"metal3://u-2":          "",
	} {
		machine.ProviderID = id
		for _, find := range []func() (policy.Host, error){
			func() (policy.Host, error) { return policy.HostFor(machine, hosts) },
			func() (policy.Host, error) { return l.HostOf(&machine) },
		} {
			h, err := find()
			if want != "" {
				require.EqualError(t, err, want)
				continue
			}
			require.NoError(t, err, id)
			assert.Equal(t, "u-2", h.UID)
		}
	}
	machine.ProviderID, machine.Annotations = "", map[string]string{"metal3.io/BareMetalHost": "victim/h"}
	_, err := policy.HostFor(machine, hosts)
	require.Error(t, err)
}

// A name that leads nowhere is still a name.
func TestNamesHost(t *testing.T) {
	annotated := map[string]string{"metal3.io/BareMetalHost": "h-1"}
	for id, names := range map[string]bool{
		"": false, "aws:///eu-1/i-1": false, "k3s://n-1": false,
		"baremetalhost:///ns/h-1": true, "baremetalhost:///ns": true, "metal3://ns/h-1": true,
	} {
		assert.Equal(t, names, (&policy.Machine{ProviderID: id}).NamesHost(), id)
		assert.True(t, (&policy.Machine{ProviderID: id, Annotations: annotated}).NamesHost(), id)
	}
}

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
