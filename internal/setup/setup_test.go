package setup

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/must"
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
		one := must.Do(yaml.Marshal(lower(raw)))(t)
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
	text := must.Do(s.rights(o, of))(t)
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
	assert.Equal(t, map[string]any{"hosts": []any{map[string]any{"node": "worker-1",
		"bmc": map[string]any{"address": "ipmi://" + hostile, "username": hostile, "passwordFile": "../credentials/bmc"}}}}, hosts, "worker-2 has a BareMetalHost, and the others nobody named")

	completed := regexp.MustCompile("(?m)^# ").ReplaceAllString(string(s.hostsYAML(&Options{User: "fence"})), "")
	completed = strings.ReplaceAll(completed, "ADDRESS", "ipmi://192.0.2.13")
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

// An entry pins no UUID that fenced refuses: one that identifies no machine, or that two entries have. It says what to do.
func TestHostsOfMachinesWithoutAUUIDOfTheirOwn(t *testing.T) {
	const own, pool, both = "4c4c4544-0051-4d10-8059-b4c04f563733", "00000000-0000-00A0-0000-000000000001", "5c4c4544-0051-4d10-8059-b4c04f563733"
	s := seen("v1.36.3")
	s.Nodes = []Node{{Name: "own", UUID: own}, {Name: "pool", UUID: pool}, {Name: "ami", UUID: "03000200-0400-0500-0006-000700080009"},
		{Name: "one", UUID: both}, {Name: "two", UUID: "44454c5c-5100-104d-8059-b4c04f563733"}, {Name: "none"}}
	o := &Options{Dir: "/etc/fenced", User: "fence", BMCs: map[string]string{}}
	for _, n := range s.Nodes {
		o.BMCs[n.Name] = "redfish://" + n.Name
	}
	text := s.hostsYAML(o)
	var file struct{ Hosts []struct{ Node, UUID string } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	got := map[string]string{}
	for _, h := range file.Hosts {
		got[h.Node] = h.UUID
	}
	assert.Equal(t, map[string]string{"own": own, "pool": pool, "ami": "", "one": "", "two": "", "none": ""}, got)
	assert.Contains(t, string(text), "    # without uuid: 03000200-0400-0500-0006-000700080009 is what a firmware reports that knows none; enroll the host: fencectl bmc enroll ami --reason WHY\n")
	assert.Equal(t, 2, strings.Count(string(text), "# without uuid: another Node has "))

	var enroll []Step
	for _, step := range s.Next(o) {
		if strings.Contains(step.Command, "enroll") {
			enroll = append(enroll, step)
		}
	}
	require.Len(t, enroll, 1)
	assert.Equal(t, `sudo fencectl bmc enroll ami --reason "checked in the rack"`, enroll[0].Command)
	assert.Contains(t, enroll[0].Do, "The firmware of ami has no UUID of its own")
}

// The policy for a cluster without checks is one that the daemon reads; a cluster with checks, or with
// Machines for checks, gets none.
func TestStarterPolicy(t *testing.T) {
	s := seen("v1.36.3")
	found := must.Do(manifest.DecodePolicies("policies.d/prod.yaml", s.StarterPolicy()))(t)
	require.Len(t, found.Checks, 1)
	of := func(label string) *policy.Node {
		return &policy.Node{Labels: policy.LabelsOf(map[string]string{"kubernetes.io/hostname": "n-1", label: ""})}
	}
	assert.True(t, found.Checks[0].Covers(nil, of("node-role.kubernetes.io/worker")))
	for _, label := range policy.ControlPlaneLabels {
		assert.False(t, found.Checks[0].Covers(nil, of(label)), label)
	}
	s.Nodes = []Node{{Name: "n-1", ControlPlane: true, Hostname: "n-1"}, {Name: "n-2"}}
	found = must.Do(manifest.DecodePolicies("policies.d/prod.yaml", s.StarterPolicy()))(t)
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

// TestNextOverwritesNothingUnasked: whoever had init write into another directory, as for an upgrade, may have a configuration that is armed,
// protects hosts and names their BMCs.
func TestNextOverwritesNothingUnasked(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{from + "/fenced.yaml": "mode: observe", from + "/new.yaml": "new", to + "/fenced.yaml": "mode: evaluate"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for _, step := range seen("v1.36.3").Next(&Options{Dir: from}) {
		if line, found := strings.CutPrefix(step.Command, "sudo cp "); found {
			line, _, _ = strings.Cut(strings.Replace(line, " /etc/fenced ", " "+to+" ", 1), "&&")
			said, err := exec.Command("sh", "-c", "exec cp "+line+" </dev/null").CombinedOutput()
			t.Logf("%s: %v", said, err) // newer ones fail where nobody says yes
		}
	}
	assert.Equal(t, "new", string(must.Do(os.ReadFile(to+"/new.yaml"))(t)))
	assert.Equal(t, "mode: evaluate", string(must.Do(os.ReadFile(to+"/fenced.yaml"))(t)))
}

// kubectl is a stand-in that answers as kubectl does, and notes how it was called.
const kubectl = `#!/bin/sh
echo "$*" >>"$(dirname "$0")/called"
namespace=$(dirname "$0")/namespace-of-$(basename "$3") # of the API server that the kubeconfig leads to
case "$*" in
*"get namespace"*) if [ -e "$namespace" ]; then cat "$namespace"; fi ;;
*"create namespace"*) printf uid-made | tee "$namespace" ;;
*"get secret"* | *"create token"*) printf the-token ;;
*.server}) printf https://192.0.2.10:6443 ;;
*.certificate-authority-data}) printf Q0E= ;;
*jsonpath*) ;;
*" version")
	[ ! -e "$(dirname "$0")/interrupts" ] || kill -TERM $PPID
	[ ! -e "$(dirname "$0")/refuses" ] ;;
esac
`

// minted runs the script in a directory of its own; happens is "", "refuses" or "interrupts".
func minted(t *testing.T, s *Survey, o *Options, happens string, args ...string) (dir, said string, err error) {
	t.Helper()
	dir = t.TempDir()
	said, err = mintedIn(t, dir, s, o, happens, args...)
	return dir, said, err
}

// mintedIn runs it in a directory in which it may have run before.
func mintedIn(t *testing.T, dir string, s *Survey, o *Options, happens string, args ...string) (said string, err error) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, s.script()), s.mintScript(o), 0o600))
	if happens != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, happens), nil, 0o600))
	}
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{filepath.Join(dir, s.script())}, args...)...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECTL=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The script writes a kubeconfig that only its owner may read, with nothing of the administrator's account.
func TestMintScript(t *testing.T) {
	s := seen("v1.36.3")
	o := &Options{Dir: "/etc/fenced", Request: Request{Kubeconfig: "/root/`$(touch pwned)`/admin \"x\" }.conf"}}
	dir, said, err := minted(t, s, o, "")
	require.NoError(t, err, said)
	assert.NotContains(t, said, "the-token")
	assert.NoFileExists(t, filepath.Join(dir, "pwned"))
	called := must.Do(os.ReadFile(filepath.Join(dir, "called")))(t)
	assert.Contains(t, string(called), "--kubeconfig "+o.Request.Kubeconfig+" apply -f prod-rbac.yaml\n")
	assert.NotContains(t, string(called), "the-token", "a token on a command line")

	text := must.Do(os.ReadFile(filepath.Join(dir, "prod.kubeconfig")))(t)
	var kubeconfig map[string]any
	require.NoError(t, yaml.Unmarshal(text, &kubeconfig))
	assert.Equal(t, []any{map[string]any{"name": "fenced", "cluster": map[string]any{"server": "https://192.0.2.10:6443", "certificate-authority-data": "Q0E="}}}, kubeconfig["clusters"])
	assert.Equal(t, []any{map[string]any{"name": "fenced", "user": map[string]any{"token": "the-token"}}}, kubeconfig["users"])
	fi := must.Do(os.Stat(filepath.Join(dir, "prod.kubeconfig")))(t)
	assert.Zero(t, fi.Mode().Perm()&0o007, "others may read the token")
}

// A kubeconfig that the API server refuses, or whose check is interrupted, does not take the place of the one that works. No
// question waits for ever for an API server that hangs.
func TestMintScriptKeepsWhatWorks(t *testing.T) {
	s := seen("v1.36.3")
	for _, happens := range []string{"refuses", "interrupts"} {
		dir, said, err := minted(t, s, &Options{}, happens, "admin.conf")
		require.Error(t, err, said)
		assert.Equal(t, happens == "refuses", strings.Contains(said, "does not take the new kubeconfig"))
		assert.NoFileExists(t, filepath.Join(dir, "prod.kubeconfig"))
		assert.NoFileExists(t, filepath.Join(dir, "prod.kubeconfig.new"), "a token is left behind")
		called := must.Do(os.ReadFile(filepath.Join(dir, "called")))(t)
		for call := range strings.Lines(string(called)) {
			assert.Contains(t, call, "--request-timeout=30s")
		}
	}
}

// A token that expires comes from a request; --server replaces the address.
func TestMintScriptOptions(t *testing.T) {
	s := seen("v1.36.3")
	s.Servers = append(s.Servers, Server{URL: "https://192.0.2.20:6443"})
	o := &Options{TokenDuration: 720 * time.Hour, Server: "https://api.example.org:6443'"}
	dir, said, err := minted(t, s, o, "", "given.conf", "/other.conf")
	require.NoError(t, err, said)
	called := must.Do(os.ReadFile(filepath.Join(dir, "called")))(t)
	assert.Contains(t, string(called), "--kubeconfig //given.conf apply", "relative to where the script is called")
	assert.Contains(t, string(called), "--kubeconfig /other.conf apply")
	assert.Contains(t, string(called), "create token fenced --duration 2592000s\n")
	assert.Contains(t, string(called), "apply -f prod-management-rbac.yaml\n")
	text := must.Do(os.ReadFile(filepath.Join(dir, "prod.kubeconfig")))(t)
	assert.Contains(t, string(text), `server: "https://api.example.org:6443'"`)
	text = must.Do(os.ReadFile(filepath.Join(dir, "prod-management.kubeconfig")))(t)
	assert.Contains(t, string(text), `server: "https://192.0.2.10:6443"`)
}

// The script makes the Namespace of fenced, and afterwards knows it by its UID. One that somebody else made is refused before
// anything is granted, whatever labels it has, until a person has accepted just that one.
func TestMintScriptTrustsNoNamespaceOfOthers(t *testing.T) {
	for _, apart := range []bool{false, true} {
		s := seen("v1.36.3")
		if apart {
			s.Servers = append(s.Servers, Server{URL: "https://192.0.2.20:6443"})
		}
		granted := func(dir string) bool {
			called := must.Do(os.ReadFile(filepath.Join(dir, "called")))(t)
			return strings.Contains(string(called), " apply ")
		}
		dir := t.TempDir()
		namespace, args := filepath.Join(dir, "namespace-of-admin.conf"), []string{"admin.conf"}
		if apart { // the first of two is fine
			namespace, args = filepath.Join(dir, "namespace-of-manager.conf"), []string{"admin.conf", "manager.conf"}
		}
		require.NoError(t, os.WriteFile(namespace, []byte("uid-of-a-tenant"), 0o600))
		for _, o := range []*Options{{}, {ExistingNamespace: true}} { // accepted, and gone when init looked
			said, err := mintedIn(t, dir, s, o, "", args...)
			require.Error(t, err)
			assert.Contains(t, said, "the namespace fenced exists, and this script did not make it")
			assert.Contains(t, said, "--existing-namespace")
			assert.False(t, granted(dir), "%s", said)
			assert.NoFileExists(t, filepath.Join(dir, "prod.kubeconfig"))
		}
		require.NoError(t, os.Remove(namespace))
		for range 2 { // made, and then known
			said, err := mintedIn(t, dir, s, &Options{}, "", args...)
			require.NoError(t, err, said)
			assert.True(t, granted(dir))
		}
		require.NoError(t, os.WriteFile(namespace, []byte("uid-of-a-tenant"), 0o600))
		said, err := mintedIn(t, dir, s, &Options{}, "", args...)
		require.Error(t, err, "another one has taken the place of what it made: %s", said)

		for i := range s.Servers {
			s.Servers[i].Namespace = "uid-of-a-tenant"
		}
		_, err = mintedIn(t, dir, s, &Options{}, "", args...)
		require.Error(t, err, "nobody has accepted it")
		for _, accepted := range []bool{true, false} { // and then known
			said, err := mintedIn(t, dir, s, &Options{ExistingNamespace: accepted}, "", args...)
			require.NoError(t, err, said)
		}
	}
}
