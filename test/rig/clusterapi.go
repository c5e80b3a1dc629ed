package rig

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	freeport "github.com/fenced/fenced/test/port"
)

// ClusterAPINamespace is where the manager of the Cluster API has its Lease.
const ClusterAPINamespace = "capi-system"

// clusterAPIUser is the service account of the manager's manifests. The rig runs no Pods, so the
// manager has a certificate in that name.
const clusterAPIUser = "system:serviceaccount:" + ClusterAPINamespace + ":capi-manager"

// ClusterAPI is the Cluster API of a control plane: its CRDs in all their versions, its webhooks and
// its real manager. Providers are not part of it; for infrastructure and control plane see Provider.
type ClusterAPI struct {
	on      *ControlPlane
	bin     string // that of ClusterAPIBinary
	webhook string // its address

	mu      sync.Mutex
	manager *process
}

// StartClusterAPI installs the Cluster API and starts its manager, with the rights and the flags of its
// own manifests. It returns when the manager is the leader and its webhooks are asked.
func (c *ControlPlane) StartClusterAPI(ctx context.Context) (_ *ClusterAPI, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	a := &ClusterAPI{on: c}
	defer func() {
		if err != nil {
			a.Stop()
		}
	}()
	if a.bin, err = ClusterAPIBinary(ctx, c.opts.Progress); err != nil {
		return nil, err
	}
	if a.webhook, err = freeport.Free("tcp", "127.0.0.1"); err != nil {
		return nil, err
	}
	if err := a.install(ctx); err != nil {
		return nil, err
	}
	if err := a.start(ctx); err != nil {
		return nil, err
	}
	if err := a.installWebhooks(ctx); err != nil {
		return nil, err
	}
	return a, wait(ctx, "the manager of the Cluster API to lead", func() (bool, error) { return a.leads(ctx) })
}

func (a *ClusterAPI) start(ctx context.Context) error {
	kubeconfig, err := a.on.Kubeconfig(clusterAPIUser, "system:serviceaccounts", "system:serviceaccounts:"+ClusterAPINamespace, "system:authenticated")
	if err != nil {
		return err
	}
	health, err := freeport.Free("tcp", "127.0.0.1")
	if err != nil {
		return err
	}
	_, webhookPort, err := net.SplitHostPort(a.webhook)
	if err != nil {
		return fmt.Errorf("start the manager of the Cluster API: %w", err)
	}
	p, err := startProcess(a.on.dir.path, filepath.Join(a.bin, clusterAPIManager), []string{
		"--kubeconfig=" + kubeconfig,
		// A manager that cannot renew its Lease in time ends: an API server may be that busy.
		"--leader-elect", "--leader-elect-lease-duration=3m", "--leader-elect-renew-deadline=2m",
		"--webhook-port=" + webhookPort,
		"--webhook-cert-dir=" + a.on.dir.path, "--webhook-cert-name=server.crt", "--webhook-key-name=server.key",
		"--health-addr=" + health,
		"--diagnostics-address=0", "--insecure-diagnostics", // nothing listens
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.manager = p
	a.mu.Unlock()
	return a.on.await(ctx, p, "http://"+health+"/readyz", nil)
}

// leads reports whether the manager holds its Lease. Only then do its controllers run.
func (a *ClusterAPI) leads(ctx context.Context) (bool, error) {
	if err := a.Died(); err != nil {
		return false, err
	}
	lease, err := a.on.client.CoordinationV1().Leases(ClusterAPINamespace).Get(ctx, "controller-leader-election-capi", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "", nil
}

// Stop ends the manager. It may be called twice.
func (a *ClusterAPI) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.manager.kill()
}

// Died returns the error of a manager that ended by itself, or nil.
func (a *ClusterAPI) Died() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.manager == nil {
		return nil
	}
	return a.manager.died()
}

// ConnectCluster gives the manager the kubeconfig of a Cluster, whose Nodes are on the API server nodes.
func (a *ClusterAPI) ConnectCluster(ctx context.Context, cluster string, nodes *ControlPlane) error {
	path, err := nodes.Kubeconfig("cluster-api", AdminGroup)
	if err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the kubeconfig of Cluster %s: %w", cluster, err)
	}
	secret := object("v1", "Secret", cluster+"-kubeconfig", map[string]string{capiClusterLabel: cluster}, nil)
	secret.Object["type"] = "cluster.x-k8s.io/secret"
	secret.Object["stringData"] = map[string]any{"value": string(kubeconfig)}
	return a.on.apply(ctx, secret)
}

// clusterAPIPrefix is before the names of the manifests, as in a release of the Cluster API.
const clusterAPIPrefix = "capi-"

// install creates the CRDs and the rights, from the manifests of the module.
func (a *ClusterAPI) install(ctx context.Context) error {
	if err := a.on.CreateNamespace(ctx, ClusterAPINamespace); err != nil {
		return err
	}
	defs, err := a.manifests("crd/bases/*.yaml")
	if err != nil {
		return err
	}
	for _, def := range defs {
		setDefault(def, "cluster.x-k8s.io/provider", "cluster-api")
		conversion := map[string]any{
			"strategy": "Webhook",
			"webhook":  map[string]any{"conversionReviewVersions": []any{"v1", "v1beta1"}, "clientConfig": a.client("/convert")},
		}
		if err := unstructured.SetNestedMap(def.Object, conversion, "spec", "conversion"); err != nil {
			return fmt.Errorf("give CRD %s its webhook: %w", def.GetName(), err)
		}
	}
	if err := a.on.installDefinitions(ctx, defs); err != nil {
		return err
	}
	rights, err := a.manifests("rbac/*role*.yaml", "rbac/service_account.yaml")
	if err != nil {
		return err
	}
	for _, obj := range rights {
		if err := a.on.apply(ctx, released(obj)); err != nil {
			return err
		}
	}
	return nil
}

// installWebhooks makes the API server ask the manager at each write. It must run by then.
func (a *ClusterAPI) installWebhooks(ctx context.Context) error {
	objs, err := a.manifests("webhook/manifests.yaml")
	if err != nil {
		return err
	}
	for _, obj := range objs {
		hooks, _, err := unstructured.NestedSlice(obj.Object, "webhooks")
		if err != nil {
			return fmt.Errorf("read the webhooks of the Cluster API: %w", err)
		}
		for _, h := range hooks {
			hook, _ := h.(map[string]any)
			path, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
			hook["clientConfig"] = a.client(path)
			hook["timeoutSeconds"] = int64(30) // the longest; a manager may be busy
		}
		obj.Object["webhooks"] = hooks
		if err := a.on.apply(ctx, released(obj)); err != nil {
			return err
		}
	}
	return nil
}

// client is how the API server reaches a webhook of the manager.
func (a *ClusterAPI) client(path string) map[string]any {
	return map[string]any{"url": "https://" + a.webhook + path, "caBundle": base64.StdEncoding.EncodeToString(a.on.ca.PEM)}
}

// manifests returns the objects in files of the module's directory config.
func (a *ClusterAPI) manifests(patterns ...string) (objs []*unstructured.Unstructured, err error) {
	for _, pattern := range patterns {
		found, err := objectsIn(os.DirFS(filepath.Join(a.bin, clusterAPIManifests)), pattern)
		if err != nil {
			return nil, fmt.Errorf("read the manifests of the Cluster API: %w", err)
		}
		objs = append(objs, found...)
	}
	return objs, nil
}

// released is a manifest as a release of the Cluster API has it: with names, namespace and the
// aggregated role of the kustomizations in config/default.
func released(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	name := obj.GetName()
	obj.SetName(clusterAPIPrefix + name)
	if !strings.HasPrefix(obj.GetKind(), "Cluster") && !strings.HasSuffix(obj.GetKind(), "Configuration") {
		obj.SetNamespace(ClusterAPINamespace)
	}
	if name == "manager-role" {
		setDefault(obj, "cluster.x-k8s.io/aggregate-to-manager", "true")
	}
	if ref, ok := obj.Object["roleRef"].(map[string]any); ok {
		role, _ := ref["name"].(string)
		if role == "manager-role" {
			role = "aggregated-manager-role"
		}
		ref["name"] = clusterAPIPrefix + role
		obj.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": clusterAPIPrefix + "manager", "namespace": ClusterAPINamespace}}
	}
	return obj
}

// clusterAPIVersion is that of test/clusterapi/go.mod.
const clusterAPIVersion = "v1.12.1"

const clusterAPIFlags = "-s -w -X sigs.k8s.io/cluster-api/version.gitVersion=" + clusterAPIVersion

const clusterAPIModule = "sigs.k8s.io/cluster-api"

// clusterAPIEdits are the two changes to the manager's main.go: without a Pod around it, it finds no
// namespace for its Lease, and its webhooks would listen on all addresses. No flag says either.
var clusterAPIEdits = []struct{ from, to string }{
	{"Port:     webhookPort,", `Host: "127.0.0.1", Port: webhookPort,`},
	{`"controller-leader-election-capi",`, `"controller-leader-election-capi", LeaderElectionNamespace: "` + ClusterAPINamespace + `",`},
}

// The files in the directory that ClusterAPIBinary returns.
const (
	clusterAPIManager   = "cluster-api-manager"
	clusterAPIManifests = "config" // that of the module
)

// ClusterAPIBinary returns the directory that holds the manager of the Cluster API and its manifests.
// Like Binaries, it builds them if this user never did.
func ClusterAPIBinary(ctx context.Context, progress io.Writer) (string, error) {
	return cached(ctx, "clusterapi", "", clusterAPIVersion, clusterAPIFlags+fmt.Sprint(clusterAPIEdits), progress, buildClusterAPI)
}

// buildClusterAPI builds the manager in a copy of its module, because Go replaces no file below its
// module cache, and keeps the manifests of that copy.
func buildClusterAPI(ctx context.Context, module, dir string, progress io.Writer) error {
	downloaded, err := download(ctx, module, clusterAPIModule)
	if err != nil {
		return err
	}
	source := filepath.Join(dir, "source")
	if err := os.CopyFS(source, os.DirFS(downloaded)); err != nil {
		return fmt.Errorf("copy the module of the Cluster API: %w", err)
	}
	if err := editMain(filepath.Join(source, "main.go")); err != nil {
		return err
	}
	out := filepath.Join(dir, clusterAPIManager)
	if err := buildOne(ctx, source, out, ".", clusterAPIFlags, "the manager of the Cluster API", "3 minutes on 2 cores", progress); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(source, "config"), filepath.Join(dir, clusterAPIManifests)); err != nil {
		return fmt.Errorf("keep the manifests of the Cluster API: %w", err)
	}
	if err := os.RemoveAll(source); err != nil {
		return fmt.Errorf("remove the copy of the Cluster API's module: %w", err)
	}
	return nil
}

// download returns the directory of a module that the go.mod in dir requires. Go compares it with
// go.sum.
func download(ctx context.Context, dir, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	if e := json.Unmarshal(out, &got); e != nil || got.Error != "" || got.Dir == "" {
		return "", fmt.Errorf("download %s: %w", module, errors.Join(err, e, errors.New(got.Error)))
	}
	return got.Dir, nil
}

func editMain(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the manager's main.go: %w", err)
	}
	edited := string(text)
	for _, e := range clusterAPIEdits {
		if n := strings.Count(edited, e.from); n != 1 {
			return fmt.Errorf("edit the manager's main.go: %q is there %d times, not once: see what this version of the Cluster API has in its place", e.from, n)
		}
		edited = strings.Replace(edited, e.from, e.to, 1)
	}
	if err := os.WriteFile(path, []byte(edited), 0o644); err != nil {
		return fmt.Errorf("write the manager's main.go: %w", err)
	}
	return nil
}
