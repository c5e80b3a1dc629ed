package setup

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

const hostile = "x: \"`$(id)\"\n- #'\u202e"

// seen is what init saw of one API server.
func seen(version string, groups ...string) *Survey {
	return &Survey{Cluster: "prod", Servers: []Server{{URL: "https://192.0.2.10:6443", Version: version, Groups: groups}}}
}

// rule is a rule of a role, as Kubernetes reads it.
type rule struct {
	APIGroups, Resources, ResourceNames, Verbs []string
}

// object is a document of a manifest.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Rules    []rule
	Subjects []map[string]string
	RoleRef  map[string]string
}

func objects(t *testing.T, text []byte) (all []object) {
	t.Helper()
	var raw any
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return all
		} else {
			require.NoError(t, err, "%s", text)
		}
		one, err := yaml.Marshal(lower(raw))
		require.NoError(t, err)
		var o object
		require.NoError(t, yaml.Unmarshal(one, &o))
		all = append(all, o)
	}
}

// lower gives keys the names that yaml gives to fields.
func lower(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[strings.ToLower(k)] = lower(e)
		}
		return out
	case []any:
		for i := range v {
			v[i] = lower(v[i])
		}
	}
	return v
}

func rightsOf(t *testing.T, s *Survey, o *Options, of side) []object {
	t.Helper()
	text, err := s.rights(o, of)
	require.NoError(t, err)
	return objects(t, text)
}

// may reports whether any rule gives a verb on a resource.
func may(list []object, verb, resource string) bool {
	return slices.ContainsFunc(list, func(o object) bool {
		return slices.ContainsFunc(o.Rules, func(r rule) bool { return slices.Contains(r.Verbs, verb) && slices.Contains(r.Resources, resource) })
	})
}

func names(list []object) (all []string) {
	for _, o := range list {
		all = append(all, o.Kind+" "+o.Metadata.Name)
	}
	return all
}

// The rights are those of the package for what the server serves, and no others.
func TestRightsAreForWhatIsServed(t *testing.T) {
	plain := []string{"apps", "coordination.k8s.io", "authorization.k8s.io", "rbac.authorization.k8s.io"}
	evaluate, observe := &Options{Rights: RightsEvaluate}, &Options{Rights: RightsObserve}

	got := rightsOf(t, seen("v1.36.3", plain...), evaluate, both)
	assert.Equal(t, []string{"ServiceAccount fenced", "Secret fenced-token", "ClusterRole fenced", "ClusterRoleBinding fenced", "Role fenced", "RoleBinding fenced"}, names(got))
	assert.True(t, may(got, "delete", "nodes"))
	for _, resource := range []string{"secrets", "machines", "baremetalhosts", "nodehealthchecks", "fencedremediations", "clusterversions", "metal3remediations"} {
		assert.False(t, may(got, "get", resource) || may(got, "list", resource), resource)
	}
	for _, o := range got {
		for _, r := range o.Rules {
			assert.False(t, slices.Contains(r.ResourceNames, "e1f13584.medik8s.io"))
		}
		if o.Subjects != nil {
			assert.Equal(t, []map[string]string{{"kind": "ServiceAccount", "name": "fenced", "namespace": "fenced"}}, o.Subjects, o.Metadata.Name)
		}
	}

	got = rightsOf(t, seen("v1.36.3", append(plain, "machine.openshift.io", "metal3.io", "config.openshift.io")...), evaluate, both)
	assert.Contains(t, names(got), "ClusterRole fenced-management")
	assert.True(t, may(got, "get", "secrets"), "of BareMetalHosts")
	assert.False(t, may(got, "list", "secrets"))
	assert.True(t, may(got, "delete", "machines"))
	assert.False(t, may(got, "list", "clusters"), "no Cluster API")

	got = rightsOf(t, seen("v1.36.3", append(plain, "machine.openshift.io", "metal3.io")...), observe, both)
	for _, verb := range []string{"delete", "patch", "create", "update"} {
		for _, resource := range []string{"nodes", "machines", "leases", "baremetalhosts"} {
			assert.False(t, may(got, verb, resource), "%s %s in mode observe", verb, resource)
		}
	}
	assert.True(t, may(got, "list", "nodes"))

	medik8s := seen("v1.36.3", append(plain, "remediation.medik8s.io")...)
	medik8s.Medik8sLeases = true
	got = rightsOf(t, medik8s, evaluate, both)
	assert.True(t, slices.ContainsFunc(got, func(o object) bool { return o.Kind == "Role" && o.Metadata.Namespace == "medik8s-leases" }))
	assert.True(t, may(got, "list", "nodehealthchecks"))
}

// A management API gets its own part of the rights, and the workload API the other.
func TestRightsOfTwoServers(t *testing.T) {
	s := seen("v1.36.3", "coordination.k8s.io", "authorization.k8s.io")
	s.Servers = append(s.Servers, Server{URL: "https://192.0.2.20:6443", Groups: []string{"cluster.x-k8s.io", "metal3.io", "coordination.k8s.io"}})
	o := &Options{Rights: RightsEvaluate, TokenDuration: 3600e9}
	work, manage := rightsOf(t, s, o, workload), rightsOf(t, s, o, management)
	assert.Equal(t, []string{"ServiceAccount fenced", "ClusterRole fenced", "ClusterRoleBinding fenced", "Role fenced", "RoleBinding fenced"}, names(work), "no Secret for a token that expires")
	assert.Equal(t, []string{"ServiceAccount fenced", "ClusterRole fenced-management", "ClusterRole fenced-secrets", "ClusterRoleBinding fenced-management"}, names(manage))
	assert.True(t, may(manage, "get", "secrets"))
	assert.False(t, may(manage, "delete", "nodes"))
	assert.False(t, may(work, "get", "secrets"))
}

// Secrets may be read in the namespaces that have BareMetalHosts, and nowhere else.
func TestSecretsAreReadableByNamespace(t *testing.T) {
	alone := seen("v1.36.3", "metal3.io", "cluster.x-k8s.io")
	apart := seen("v1.36.3")
	apart.Servers = append(apart.Servers, alone.Servers[0])
	for _, rights := range []Rights{RightsEvaluate, RightsObserve} {
		for of, s := range map[side]*Survey{both: alone, management: apart, workload: apart} {
			s.HostNamespaces = []string{hostile, "racks"}
			var secrets []string
			bound := map[string]string{}
			for _, o := range rightsOf(t, s, &Options{Rights: rights}, of) {
				if may([]object{o}, "get", "secrets") {
					secrets = append(secrets, o.Metadata.Name)
				}
				if o.Kind == "ClusterRoleBinding" || o.Kind == "RoleBinding" {
					assert.Equal(t, []map[string]string{{"kind": "ServiceAccount", "name": "fenced", "namespace": "fenced"}}, o.Subjects)
					if o.RoleRef["name"] == "fenced-secrets" {
						bound[o.Metadata.Namespace] = o.Kind + " of " + o.RoleRef["kind"]
					}
				}
			}
			if of == workload {
				assert.Empty(t, secrets)
				assert.Empty(t, bound)
				continue
			}
			assert.Equal(t, []string{"fenced-secrets"}, secrets, "roles that read Secrets")
			assert.Equal(t, map[string]string{hostile: "RoleBinding of ClusterRole", "racks": "RoleBinding of ClusterRole"}, bound)
		}
	}
}

// What the cluster says about itself decides what is written, and can write nothing else.
func TestFilesFollowTheCluster(t *testing.T) {
	s := seen("v1.33.1+k3s1")
	s.Nodes = []Node{{Name: "server-1", ControlPlane: true}, {Name: "worker-1", UUID: hostile}, {Name: "worker-2", BMC: "ipmi://192.0.2.12"}, {Name: "worker-3"}}
	o := &Options{Version: hostile, Dir: "/etc/fenced", Rights: RightsEvaluate, BMCs: map[string]string{"worker-1": hostile}, User: hostile}
	assert.Equal(t, K3s, s.Distribution())
	config := map[string]any{}
	require.NoError(t, yaml.Unmarshal(s.fencedYAML(o), &config))
	assert.Equal(t, "outOfServiceTaint", config["isolation"])
	assert.Equal(t, []any{map[string]any{"name": "prod", "kubeconfig": "prod.kubeconfig", "mode": "observe"}}, config["clusters"])

	hosts := map[string]any{}
	require.NoError(t, yaml.Unmarshal(s.hostsYAML(o), &hosts))
	assert.Equal(t, map[string]any{"hosts": []any{map[string]any{"node": "worker-1", "uuid": hostile,
		"bmc": map[string]any{"address": "ipmi://" + hostile, "username": hostile, "passwordFile": "../credentials/bmc"}}}}, hosts, "worker-2 has a BareMetalHost, and the others nobody named")

	completed := strings.NewReplacer("# ", "", "ADDRESS", "ipmi://192.0.2.13").Replace(string(s.hostsYAML(&Options{User: "fence"})))
	_, completed, _ = strings.Cut(completed, " above.\n")
	require.NoError(t, yaml.Unmarshal([]byte("hosts:\n"+completed), &hosts), "what a person completes:\n%s", completed)
	assert.Len(t, hosts["hosts"], 3)

	assert.NotContains(t, string(seen("v1.36.3").fencedYAML(o)), "isolation:")
	asks := seen("v1.36.3")
	asks.Kinds = []Kind{{Kind: "NodeHealthCheck", Served: true, Objects: 1}}
	require.NoError(t, yaml.Unmarshal(asks.fencedYAML(o), &config))
	assert.Equal(t, "outOfServiceTaint", config["isolation"], "a NodeHealthCheck forgets a Node that is deleted")
	asks.Kinds[0].Objects = 0
	assert.NotContains(t, string(asks.fencedYAML(o)), "isolation:")
	for group, why := range map[string]string{"ceph.rook.io": "NetworkFence", "longhorn.io": "Longhorn"} {
		config = map[string]any{}
		text := seen("v1.36.3", "apps", group).fencedYAML(o)
		require.NoError(t, yaml.Unmarshal(text, &config))
		assert.Equal(t, "outOfServiceTaint", config["isolation"], group)
		assert.Contains(t, string(text), why)
	}
	assert.Equal(t, RKE2, seen("v1.33.1+rke2r1").Distribution())
	assert.Equal(t, OpenShift, seen("v1.33.1", "config.openshift.io").Distribution())
}

// The policy for a cluster without checks is one that the daemon reads; a cluster with checks, or with
// Machines for checks, gets none.
func TestStarterPolicy(t *testing.T) {
	s := seen("v1.36.3")
	found, err := manifest.DecodePolicies("policies.d/prod.yaml", s.StarterPolicy())
	require.NoError(t, err)
	require.Len(t, found.Checks, 1)
	of := func(label string) *policy.Node {
		return &policy.Node{Labels: map[string]string{"kubernetes.io/hostname": "n-1", label: ""}}
	}
	assert.True(t, found.Checks[0].Covers(nil, of("node-role.kubernetes.io/worker")))
	for _, label := range policy.ControlPlaneLabels {
		assert.False(t, found.Checks[0].Covers(nil, of(label)), label)
	}
	s.Nodes = []Node{{Name: "n-1", ControlPlane: true, Hostname: "n-1"}, {Name: "n-2"}}
	found, err = manifest.DecodePolicies("policies.d/prod.yaml", s.StarterPolicy())
	require.NoError(t, err)
	assert.False(t, found.Checks[0].Covers(nil, of("x")), "its Pods show that it is of the control plane")
	for _, kind := range []string{"MachineHealthCheck", "NodeHealthCheck", "Machine"} {
		s.Kinds = []Kind{{Kind: kind, Served: true, Objects: 1}}
		assert.Nil(t, s.StarterPolicy(), kind)
	}
	s.Kinds = nil
	s.Unseen = []Unseen{NotSeen("MachineHealthCheck.machine.openshift.io", "MachineHealthCheck", "forbidden")}
	assert.Nil(t, s.StarterPolicy(), "checks that could not be read may exist")
}

// The first dry run that init names is of a host for which it can succeed.
func TestNextNamesAHostThatCanBeFenced(t *testing.T) {
	s := seen("v1.36.3")
	s.Nodes = []Node{{Name: "master-1", ControlPlane: true, Ready: true, Asked: true, BMC: "ipmi://192.0.2.1"},
		{Name: "theirs", Ready: true, Asked: true, Contested: "the actuator", BMC: "ipmi://192.0.2.2"},
		{Name: "none", Ready: true, Asked: true}, {Name: "good", Ready: true, Asked: true, BMC: "ipmi://192.0.2.3"}}
	var commands []string
	for _, step := range s.Next(&Options{Dir: "/etc/fenced"}) {
		commands = append(commands, step.Command)
	}
	assert.Equal(t, []string{
		"sudo sh /etc/fenced/prod-kubeconfig.sh", "sudo vi /etc/fenced/hosts.d/prod.yaml",
		"sudo install -g fenced -m 0640 /dev/stdin /etc/fenced/credentials/bmc", "sudo fenced --check-config", "sudo systemctl enable --now fenced",
		"sudo fencectl fence good --reason test --dry-run", `sudo fencectl arm --reason "tested"`,
	}, commands)
	last := s.Next(&Options{Dir: "/etc/fenced", Rights: RightsObserve})
	assert.Contains(t, last[len(last)-1].Do, "--rights evaluate", "these rights are not enough to arm")
}
