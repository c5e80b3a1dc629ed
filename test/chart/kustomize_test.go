package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

// piece is a directory of configs/kustomize: a base, or a component to add to one.
type piece struct {
	heading string
	// values and templates say what of the chart it is; without templates it has files of configs/ as they are.
	values    map[string]any
	templates []string
	files     []string
	text      string // a manifest of its own
}

// pieces are all directories of configs/kustomize.
var pieces = map[string]piece{
	"observe": {"What fenced needs in a cluster with `mode: observe`. Make the namespace fenced first: kubectl create namespace fenced fails if somebody else has it.",
		map[string]any{"mode": "observe", "apiGroups": allGroups}, []string{"account", "rights-observe"}, nil, ""},
	"evaluate": {"What fenced needs in a cluster with `mode: evaluate`. Make the namespace fenced first: kubectl create namespace fenced fails if somebody else has it.",
		map[string]any{"mode": "evaluate", "apiGroups": allGroups}, []string{"account", "rights-evaluate"}, nil, ""},
	"respond": {"What fenced needs in a cluster with `mode: respond`. Make the namespace fenced first: kubectl create namespace fenced fails if somebody else has it.",
		map[string]any{"mode": "respond", "apiGroups": allGroups}, []string{"account", "rights-respond"}, nil, ""},
	"daemon": {"fenced itself, in a management cluster whose own Nodes it does not fence. Patch the image and the ConfigMap, and make the Secret fenced-files with the key prod.kubeconfig.",
		map[string]any{"mode": "none", "daemon.enabled": true, "daemon.image.repository": "fenced",
			"daemon.config.clusters": []any{object{"name": "prod", "kubeconfig": "prod.kubeconfig", "mode": "observe"}},
			"daemon.secretFiles":     []any{object{"path": "prod.kubeconfig", "secret": "fenced-files", "key": "prod.kubeconfig"}}}, []string{"daemon"}, nil, ""},
	"components/medik8s": {"Beside evaluate or respond, where the namespace medik8s-leases exists.",
		map[string]any{"mode": "evaluate", "medik8s": true}, []string{"rights-medik8s"}, nil, ""},
	"components/release-pods": {"Beside evaluate or respond, with releasePods in fenced.yaml.",
		map[string]any{"mode": "evaluate", "releasePods": true}, []string{"release-pods"}, nil, ""},
	"components/make-requests": {"Beside evaluate or respond, where fenced makes the requests for other remediators.",
		map[string]any{"mode": "evaluate", "makeRequests": true, "apiGroups": allGroups}, []string{"make-requests"}, nil, ""},
	"components/protect-nodes": {"Beside any: the API server refuses what fenced must not do (Kubernetes 1.30 or later). Read configs/kubernetes/protect-nodes.yaml before you use it on OpenShift.",
		map[string]any{"protectNodes.enabled": true}, []string{"protect-nodes"}, nil, ""},
	"components/requests": {"Beside any: the kinds FencedRemediation and FencedRemediationTemplate, and the role of the controllers that make such requests.",
		nil, nil, []string{"crds/fenced.io_fencedremediations.yaml", "crds/fenced.io_fencedremediationtemplates.yaml", "crds/rbac.yaml"}, ""},
	"components/alerts": {"Beside any, where the Prometheus operator is and scrapes fenced as the job fenced: the alerts as a PrometheusRule.",
		map[string]any{"monitoring.targets": []string{"any"}}, []string{"prometheusrule"}, nil, ""},
	"components/namespace": {"Beside any, where an applier makes everything. It takes over a namespace fenced that somebody else has made: see first that there is none.",
		nil, nil, nil, "apiVersion: v1\nkind: Namespace\nmetadata: {name: fenced}\n"},
}

// The bases and components are the chart, rendered.
func TestKustomizeIsTheChart(t *testing.T) {
	templatesAreMade(t) // or -update renders those of before
	dirs := map[string]bool{}
	for dir, p := range pieces {
		at := filepath.Join("kustomize", dir)
		dirs[dir] = true
		var resources []string
		for _, f := range p.files {
			resources = append(resources, filepath.Base(f))
			golden(t, filepath.Join(at, filepath.Base(f)), read(t, f))
		}
		if p.files == nil {
			if p.text == "" {
				p.text = manifest(t, p)
			}
			resources = []string{filepath.Base(dir) + ".yaml"}
			golden(t, filepath.Join(at, resources[0]), p.text)
		}
		kind := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
		if strings.HasPrefix(dir, "components/") {
			kind = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
		}
		golden(t, filepath.Join(at, "kustomization.yaml"), "# "+p.heading+"\n"+kind+"resources: ["+strings.Join(resources, ", ")+"]\n")
	}
	found := must.Do(filepath.Glob(configs + "/kustomize/*"))(t)
	found = append(found, must.Do(filepath.Glob(configs+"/kustomize/components/*"))(t)...)
	for _, path := range found {
		dir := must.Do(filepath.Rel(configs+"/kustomize", path))(t)
		assert.True(t, dirs[dir] || dir == "components", "%s is not made", path)
	}
}

// manifest is what some templates of the chart render.
func manifest(t *testing.T, p piece) string {
	t.Helper()
	args := []string{"template", "fenced", chartDir, "--namespace", "fenced", "--api-versions", "monitoring.coreos.com/v1/PrometheusRule"}
	for _, name := range p.templates {
		args = append(args, "--show-only", "templates/"+name+".yaml")
	}
	for _, key := range slices.Sorted(maps.Keys(p.values)) {
		text := must.Do(json.Marshal(p.values[key]))(t)
		args = append(args, "--set-json", key+"="+string(text))
	}
	out, err := helm(t, args...)
	require.NoError(t, err, "%s", out)
	var kept []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "# Source: ") && strings.TrimSpace(line) != "" {
			kept = append(kept, line)
		}
	}
	return "# Made by go test ./test/chart -update.\n" + strings.Join(kept, "")
}

// kubectl kustomize builds each base with all components, and the result is the chart with the same wishes.
func TestKustomizeBuilds(t *testing.T) {
	kubectl := must.Do(rig.Kubectl(t.Context(), os.Stderr))(t) + "/kubectl"
	// kustomize takes a base by a relative path only.
	dir := must.Do(filepath.EvalSymlinks(t.TempDir()))(t)
	require.NoError(t, os.CopyFS(filepath.Join(dir, "fenced"), os.DirFS(configs+"/kustomize")))
	for base, values := range map[string]map[string]any{
		"observe":  {},
		"evaluate": {"medik8s": true, "releasePods": true, "makeRequests": true},
		"respond":  {"medik8s": true, "releasePods": true, "makeRequests": true},
	} {
		overlay := object{"resources": []string{"../fenced/" + base}}
		components := []string{"../fenced/components/protect-nodes", "../fenced/components/requests", "../fenced/components/namespace"}
		for wish, component := range map[string]string{"medik8s": "medik8s", "releasePods": "release-pods", "makeRequests": "make-requests"} {
			if values[wish] != nil {
				components = append(components, "../fenced/components/"+component)
			}
		}
		overlay["components"] = components
		at := filepath.Join(dir, "overlay-"+base)
		require.NoError(t, os.Mkdir(at, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(at, "kustomization.yaml"), must.Do(yaml.Marshal(overlay))(t), 0o644))
		out, err := run(t, kubectl, "kustomize", at)
		require.NoError(t, err, "%s", out)
		got := objects(t, out)
		for _, crd := range []string{"fencedremediations", "fencedremediationtemplates"} {
			key := "CustomResourceDefinition  " + crd + ".fenced.io"
			assert.Contains(t, got, key)
			delete(got, key)
		}
		assert.Contains(t, got, "Namespace  fenced")
		delete(got, "Namespace  fenced")
		values["mode"], values["apiGroups"], values["protectNodes.enabled"] = base, allGroups, true
		assert.Equal(t, render(t, values), got, base)
	}
	out, err := run(t, kubectl, "kustomize", filepath.Join(dir, "fenced", "daemon"))
	require.NoError(t, err, "%s", out)
	assert.Equal(t, render(t, pieces["daemon"].values), objects(t, out))
}
