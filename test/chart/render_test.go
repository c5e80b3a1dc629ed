package chart

import (
	"bytes"
	"encoding/json"
	"maps"
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
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/setup"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

const chartDir = configs + "/chart"

// helm runs helm, and returns what it writes.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	dir := must.Do(rig.Helm(t.Context(), os.Stderr))(t)
	return run(t, filepath.Join(dir, "helm"), args...)
}

func run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	return out.String() + said.String(), err
}

// object is a Kubernetes object, by its fields.
type object = map[string]any

// name is kind, namespace and name of an object.
func nameOf(o object) string {
	m, _ := o["metadata"].(object)
	text := func(v any) string { s, _ := v.(string); return s }
	return strings.Join([]string{text(o["kind"]), text(m["namespace"]), text(m["name"])}, " ")
}

func objects(t *testing.T, manifest string) map[string]object {
	t.Helper()
	found := map[string]object{}
	for doc := range strings.SplitSeq("\n"+manifest, "\n---") {
		var o object
		require.NoError(t, yaml.Unmarshal([]byte(doc), &o), "%s", doc)
		if len(o) > 0 {
			require.NotContains(t, found, nameOf(o), "twice")
			found[nameOf(o)] = o
		}
	}
	return found
}

func render(t *testing.T, values map[string]any, groups ...string) map[string]object {
	t.Helper()
	args := []string{"template", "fenced", chartDir, "--namespace", "fenced"}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text := must.Do(json.Marshal(values[key]))(t)
		args = append(args, "--set-json", key+"="+string(text))
	}
	for _, g := range groups {
		args = append(args, "--api-versions", g)
	}
	out, err := helm(t, args...)
	require.NoError(t, err, "%s", out)
	return objects(t, out)
}

// The API groups of each kind of cluster, as a look at it finds them.
var (
	builtInGroups = []string{"apps", "coordination.k8s.io", "authorization.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io"}
	openShift     = []string{"machine.openshift.io", "metal3.io", "config.openshift.io"}
	clusterAPI    = []string{"cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io", "metal3.io", "fenced.io"}
	medik8s       = []string{"remediation.medik8s.io", "self-node-remediation.medik8s.io", "fence-agents-remediation.medik8s.io", "machine-deletion-remediation.medik8s.io"}
	allGroups     = slices.Compact(slices.Sorted(slices.Values(slices.Concat(openShift, clusterAPI, medik8s))))
)

// requesters is the role of those who make requests. It comes with the CRDs, not with the rights that init writes.
const requesters = "ClusterRole  fenced-external-remediation"

// The chart renders what fencectl init writes: object by object, for each mode, each part of a cluster, and each kind of cluster.
func TestChartIsWhatInitWrites(t *testing.T) {
	for name, c := range map[string]struct {
		mode    setup.Rights
		groups  []string
		apart   []string // of the management cluster
		leases  bool
		hosts   []string
		expires time.Duration
	}{
		"plain, observe":      {mode: setup.RightsObserve},
		"plain, evaluate":     {mode: setup.RightsEvaluate},
		"OpenShift, observe":  {mode: setup.RightsObserve, groups: openShift, hosts: []string{"openshift-machine-api"}},
		"OpenShift, evaluate": {mode: setup.RightsEvaluate, groups: openShift, hosts: []string{"openshift-machine-api", "other"}, expires: time.Hour},
		"medik8s, evaluate":   {mode: setup.RightsEvaluate, groups: slices.Concat(medik8s, []string{"fenced.io"}), leases: true},
		"apart, observe":      {mode: setup.RightsObserve, groups: medik8s, leases: true, apart: clusterAPI, hosts: []string{"metal3"}},
		"apart, evaluate":     {mode: setup.RightsEvaluate, groups: medik8s, leases: true, apart: clusterAPI, hosts: []string{"metal3"}},
		"apart, no hosts":     {mode: setup.RightsEvaluate, apart: []string{"cluster.x-k8s.io"}},
		"all, observe":        {mode: setup.RightsObserve, groups: allGroups, hosts: []string{"metal3"}},
		"all, evaluate":       {mode: setup.RightsEvaluate, groups: allGroups, leases: true, hosts: []string{"metal3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup.Survey{Cluster: "prod", HostNamespaces: c.hosts, Medik8sLeases: c.leases,
				Servers: []setup.Server{{URL: "https://192.0.2.10:6443", Version: "v1.36.3", Groups: slices.Concat(builtInGroups, c.groups)}}}
			parts := map[string]string{"prod-rbac.yaml": "both"}
			if c.apart != nil {
				s.Servers = append(s.Servers, setup.Server{URL: "https://192.0.2.11:6443", Version: "v1.36.3", Groups: slices.Concat(builtInGroups, c.apart)})
				parts = map[string]string{"prod-rbac.yaml": "workload", "prod-management-rbac.yaml": "management"}
			}
			files := must.Do(s.Files(&setup.Options{Rights: c.mode, TokenDuration: c.expires, Dir: "/etc/fenced"}))(t)
			found := 0
			for _, f := range files {
				part, is := parts[f.Path]
				if !is {
					continue
				}
				found++
				served := c.groups
				if part == "management" {
					served = c.apart
				}
				values := map[string]any{"mode": c.mode, "part": part, "medik8s": c.leases, "hostNamespaces": append([]string{}, c.hosts...), "token.create": c.expires == 0,
					"requests": slices.Contains(served, "fenced.io")}
				var versions []string
				for _, g := range served {
					versions = append(versions, g+"/v1/Kind")
				}
				got := render(t, values, versions...)
				delete(got, requesters)
				assert.Equal(t, objects(t, string(f.Text)), got, part)
			}
			assert.Equal(t, len(parts), found)
		})
	}
}

// What init does not write is what the manifest of the package says, for the ServiceAccount.
func TestChartIsWhatThePackageHas(t *testing.T) {
	all := map[string]any{"apiGroups": allGroups, "medik8s": true, "releasePods": true, "makeRequests": true, "metal3Remediations": true, "protectNodes.enabled": true}
	for mode, manifests := range map[string][]string{
		"respond": {"kubernetes/respond.yaml", "rbac-medik8s.yaml", "kubernetes/release-pods.yaml", "kubernetes/templates.yaml", "crds/rbac.yaml", "kubernetes/protect-nodes.yaml"},
		"observe": {"kubernetes/observe.yaml", "crds/rbac.yaml", "kubernetes/protect-nodes.yaml"},
	} {
		want := map[string]object{}
		for _, m := range manifests {
			for key, o := range objects(t, read(t, m)) {
				if _, is := o["subjects"]; is {
					o["subjects"] = []any{object{"kind": "ServiceAccount", "name": "fenced", "namespace": "fenced"}}
				}
				if _, is := o["aggregationRule"]; is {
					delete(o, "rules") // they are none of the chart's
				}
				want[key] = o
			}
		}
		all["mode"] = mode
		got := render(t, all)
		delete(got, "ServiceAccount fenced fenced")
		delete(got, "Secret fenced fenced-token")
		assert.Equal(t, want, got, mode)
	}
	none := render(t, map[string]any{"mode": "none", "apiGroups": allGroups, "medik8s": true, "releasePods": true, "makeRequests": true, "hostNamespaces": []string{"a"}})
	assert.Empty(t, none)
	kept := render(t, map[string]any{"protectNodes.enabled": true, "protectNodes.controlPlane": false})
	assert.Contains(t, kept, "ValidatingAdmissionPolicy  fenced-changes-no-node")
	assert.NotContains(t, kept, "ValidatingAdmissionPolicy  fenced-deletes-no-control-plane-node")
}

// The alerts and the scrape config are there only where their kinds are installed.
func TestMonitoringIsRenderedWhereItsKindsAre(t *testing.T) {
	values := map[string]any{"monitoring.targets": []string{"192.0.2.11:9870"}, "monitoring.labels": map[string]string{"release": "prometheus"}}
	without := render(t, values)
	assert.NotContains(t, without, "PrometheusRule fenced fenced")
	assert.NotContains(t, without, "ScrapeConfig fenced fenced")
	kinds := []string{"monitoring.coreos.com/v1/PrometheusRule", "monitoring.coreos.com/v1alpha1/ScrapeConfig"}
	assert.NotContains(t, render(t, nil, kinds...), "PrometheusRule fenced fenced", "where no fenced is scraped, FencedDown fires at once")
	assert.Contains(t, render(t, daemonValues(), kinds...), "PrometheusRule fenced fenced")
	with := render(t, values, kinds...)
	var rules object
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "prometheus/fenced.rules.yaml")), &rules))
	rule := with["PrometheusRule fenced fenced"]
	require.NotNil(t, rule)
	assert.Equal(t, rules, rule["spec"])
	assert.Equal(t, object{"release": "prometheus"}, rule["metadata"].(object)["labels"])
	scrape := with["ScrapeConfig fenced fenced"]
	require.NotNil(t, scrape)
	assert.Equal(t, object{"jobName": "fenced", "staticConfigs": []any{object{"targets": []any{"192.0.2.11:9870"}}}}, scrape["spec"])
}

// daemonValues are those of a daemon that guards one cluster.
func daemonValues() map[string]any {
	return map[string]any{
		"mode": "none", "daemon.enabled": true, "daemon.image.repository": "registry.example.org/fenced",
		"daemon.config.clusters": []any{object{"name": "prod", "kubeconfig": "prod.kubeconfig", "mode": "observe"}},
		"daemon.secretFiles": []any{object{"path": "prod.kubeconfig", "secret": "fenced-files", "key": "prod.kubeconfig"},
			object{"path": "credentials/bmc", "secret": "fenced-files", "key": "bmc"}},
		"daemon.hosts":    object{"rack.yaml": "hosts:\n- {node: n, bmc: {address: \"ipmi://192.0.2.13\", username: u, passwordFile: ../credentials/bmc}}\n"},
		"daemon.policies": object{"prod.yaml": "{}\n"},
	}
}

// The daemon is one pod that never overlaps with the next one, has no rights where it runs, and has each file at its place with a
// directory that nobody may write. Its fenced.yaml is one.
func TestDaemonOfTheChart(t *testing.T) {
	got := render(t, daemonValues())
	names := slices.Sorted(maps.Keys(got))
	assert.Equal(t, []string{"ConfigMap fenced fenced", "Deployment fenced fenced", "PersistentVolumeClaim fenced fenced-state", "Service fenced fenced-metrics"}, names)
	spec := got["Deployment fenced fenced"]["spec"].(object)
	assert.Equal(t, float64(1), spec["replicas"])
	assert.Equal(t, object{"type": "Recreate"}, spec["strategy"])
	assert.Equal(t, object{"helm.sh/resource-policy": "keep"}, got["PersistentVolumeClaim fenced fenced-state"]["metadata"].(object)["annotations"])
	pod := spec["template"].(object)["spec"].(object)
	assert.Equal(t, false, pod["automountServiceAccountToken"])

	data := got["ConfigMap fenced fenced"]["data"].(object)
	dir := t.TempDir()
	mounted := map[string]bool{}
	for _, m := range pod["containers"].([]any)[0].(object)["volumeMounts"].([]any) {
		path, sub := m.(object)["mountPath"].(string), m.(object)["subPath"]
		mounted[path] = true
		if rest, in := strings.CutPrefix(path, "/etc/fenced/"); in {
			require.NotNil(t, sub, "%s is a directory that everybody may write", path)
			text := "x"
			if m.(object)["name"] == "config" {
				text = data[sub.(string)].(string)
			}
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, rest)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, rest), []byte(text), 0o440))
		}
	}
	for _, path := range []string{"/etc/fenced/fenced.yaml", "/etc/fenced/prod.kubeconfig", "/etc/fenced/credentials/bmc", "/etc/fenced/hosts.d/rack.yaml", "/etc/fenced/policies.d/prod.yaml",
		"/etc/machine-id", "/var/lib/fenced", "/run/fenced"} {
		assert.True(t, mounted[path], path)
	}
	c := must.Do(config.Load(filepath.Join(dir, "fenced.yaml")))(t)
	assert.Equal(t, "prod", c.Clusters[0].Name)
	assert.Equal(t, filepath.Join(dir, "prod.kubeconfig"), c.Clusters[0].Kubeconfig)
	assert.Empty(t, c.Control.Group)
	assert.Equal(t, ":9870", c.Metrics.Listen)
	c.Hosts = filepath.Join(dir, "hosts.d")
	hosts := must.Do(config.LoadHosts(c))(t)
	assert.Len(t, hosts, 1)
	assert.Empty(t, config.CheckCredentials(hosts), "the password is where hosts.d says")

	for want, change := range map[string]func(map[string]any){
		"daemon.config has no clusters": func(v map[string]any) { delete(v, "daemon.config.clusters") },
		"daemon.image.repository":       func(v map[string]any) { delete(v, "daemon.image.repository") },
		"additional properties":         func(v map[string]any) { v["deamon"] = true },
		"path":                          func(v map[string]any) { v["daemon.secretFiles[0].path"] = "../../usr/bin/fencectl" },
	} {
		values := daemonValues()
		change(values)
		args := []string{"template", "fenced", chartDir}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			text := must.Do(json.Marshal(values[key]))(t)
			args = append(args, "--set-json", key+"="+string(text))
		}
		out, err := helm(t, args...)
		require.Error(t, err, want)
		assert.Contains(t, out, want)
	}
}

// helm lint finds nothing.
func TestChartIsClean(t *testing.T) {
	out, err := helm(t, "lint", "--strict", chartDir)
	require.NoError(t, err, "%s", out)
	assert.NotContains(t, out, "[WARNING]")
}

// helm4 is the other major version of helm that people have.
const helm4 = "helm.sh/helm/v4/cmd/helm@v4.3.1"

// Helm 4 renders what Helm 3 renders: each kustomize base and component, and the daemon with files.
func TestHelm4RendersTheSame(t *testing.T) {
	dice.OnlyInSoak(t) // building it takes a minute
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "install", "-ldflags=-s -w", helm4)
	build.Env = append(os.Environ(), "GOBIN="+bin, "CGO_ENABLED=0", "GOFLAGS=")
	said, err := build.CombinedOutput()
	require.NoError(t, err, "%s", said)
	wishes := map[string]map[string]any{"files": daemonValues()}
	for name, p := range pieces {
		if p.templates != nil {
			wishes[name] = p.values
		}
	}
	for name, values := range wishes {
		args := []string{"template", "fenced", chartDir, "--namespace", "fenced", "--include-crds", "--api-versions", "monitoring.coreos.com/v1/PrometheusRule"}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			args = append(args, "--set-json", key+"="+string(must.Do(json.Marshal(values[key]))(t)))
		}
		three, err := helm(t, args...)
		require.NoError(t, err, "%s", three)
		four, err := run(t, filepath.Join(bin, "helm"), args...)
		require.NoError(t, err, "%s", four)
		require.NotEmpty(t, objects(t, three), name)
		assert.Equal(t, objects(t, three), objects(t, four), name)
	}
}

// The table of values in docs/helm.md has each value with its default, and no other.
func TestValuesAreDocumented(t *testing.T) {
	var values any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "chart/values.yaml")), &values))
	want := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		if m, is := v.(object); is && len(m) > 0 {
			for key, below := range m {
				walk(strings.TrimPrefix(path+"."+key, "."), below)
			}
			return
		}
		text := string(must.Do(json.Marshal(v))(t))
		if s, is := v.(string); is && s != "" {
			text = s
		}
		want[path] = text
	}
	walk("", values)
	page := string(must.Do(os.ReadFile("../../docs/helm.md"))(t))
	_, table, found := strings.Cut(page, "## Values of the chart\n")
	require.True(t, found)
	got := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]*)` \\|").FindAllStringSubmatch(table, -1) {
		got[row[1]] = row[2]
	}
	assert.Equal(t, want, got)
}
