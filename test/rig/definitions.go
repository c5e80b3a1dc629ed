package rig

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/test/crds"
)

// CRDs is a set of definitions that a real cluster either has or lacks. It names a directory of
// test/crds.
type CRDs string

// The sets. A control plane has one version of Cluster API or none: two versions
// need a conversion webhook, which belongs to Cluster API's own controllers.
const (
	OpenShift         CRDs = "openshift"           // machine.openshift.io
	Metal3            CRDs = "metal3"              // metal3.io: BareMetalHost
	ClusterVersions   CRDs = "openshift-config"    // config.openshift.io: ClusterVersion
	CAPIv1beta1       CRDs = "cluster-api-v1beta1" // cluster.x-k8s.io and KubeadmControlPlane
	CAPIv1beta2       CRDs = "cluster-api-v1beta2"
	Medik8s           CRDs = "medik8s"              // remediation.medik8s.io: NodeHealthCheck
	Metal3Remediation CRDs = "metal3-remediation"   // requests and templates of an external remediation
	Fenced            CRDs = "fenced"               // fenced's own, of configs/crds
	CAPIStandIn       CRDs = "cluster-api-stand-in" // of Provider
	// Medik8sRemediators are requests and templates of two of medik8s' remediators.
	Medik8sRemediators CRDs = "medik8s-remediators"
	PrometheusOperator CRDs = "prometheus-operator" // PrometheusRule and ScrapeConfig
)

// defaultCRDs are those of an OpenShift cluster on bare metal.
var defaultCRDs = []CRDs{OpenShift, Metal3}

var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// definitions returns the objects of the sets, or of the default sets if none is named.
func definitions(sets []CRDs) ([]*unstructured.Unstructured, error) {
	if sets == nil {
		sets = defaultCRDs
	}
	var found []*unstructured.Unstructured
	for _, set := range sets {
		files, pattern, err := filesOf(set)
		if err != nil {
			return nil, err
		}
		objs, err := objectsIn(files, pattern)
		if err != nil {
			return nil, fmt.Errorf("no set of CRDs %q can be read: %w", set, err)
		}
		found = append(found, objs...)
	}
	return found, nil
}

// objectsIn returns the objects of the files that a pattern names, of which there is at least one.
func objectsIn(files fs.FS, pattern string) (found []*unstructured.Unstructured, err error) {
	names, err := fs.Glob(files, pattern)
	if err == nil && len(names) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", pattern, err)
	}
	for _, name := range names {
		manifest, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		objs, err := documents(manifest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found = append(found, objs...)
	}
	return found, nil
}

// filesOf is where the definitions of a set are. fenced's own are part of the product.
func filesOf(set CRDs) (files fs.FS, pattern string, err error) {
	if set != Fenced {
		return crds.Files, path.Join(string(set), "*.yaml"), nil
	}
	root, err := Root()
	return os.DirFS(filepath.Join(root, "configs", "crds")), "fenced.io_*.yaml", err
}

// InstallCRDs installs sets of definitions, or OpenShift and Metal3 if none is named. It returns when
// the API server serves them.
func (c *ControlPlane) InstallCRDs(ctx context.Context, sets ...CRDs) error {
	defs, err := definitions(sets)
	if err != nil {
		return err
	}
	return c.installDefinitions(ctx, defs)
}

func (c *ControlPlane) installDefinitions(ctx context.Context, defs []*unstructured.Unstructured) error {
	for _, def := range defs {
		if err := c.apply(ctx, def); err != nil {
			return err
		}
	}
	for _, def := range defs {
		if err := wait(ctx, "CRD "+def.GetName()+" to be served", func() (bool, error) { return c.serves(ctx, def) }); err != nil {
			return err
		}
	}
	c.mapper.Reset() // it asks for everything, which is dozens of requests: once is enough in nearly all cases
	for _, def := range defs {
		if err := wait(ctx, "CRD "+def.GetName()+" to be in discovery", func() (bool, error) { return c.maps(ctx, def) }); err != nil {
			return err
		}
	}
	return nil
}

// RemoveCRDs makes the API server remove sets of definitions, with all objects of those kinds. It does
// not wait for the end: if nobody has listed a kind yet, a busy API server may fail to list its objects
// ("storage is (re)initializing"), and tries again only minutes later.
func (c *ControlPlane) RemoveCRDs(ctx context.Context, sets ...CRDs) error {
	defs, err := definitions(sets)
	if err != nil {
		return err
	}
	for _, def := range defs {
		err := c.dynamic.Resource(crdResource).Delete(ctx, def.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove CRD %s: %w", def.GetName(), err)
		}
	}
	return nil
}

// serves reports whether the API server serves the kind, which it does a moment after its definition is Established.
func (c *ControlPlane) serves(ctx context.Context, def *unstructured.Unstructured) (bool, error) {
	crd, err := c.dynamic.Resource(crdResource).Get(ctx, def.GetName(), metav1.GetOptions{})
	if err != nil || !established(crd) {
		return false, err
	}
	return c.client.Serves(ctx, kindOf(def).WithVersion(versionOf(def)))
}

// maps reports whether discovery shows the kind, which clients and the mapper use: its list of groups is yet a moment later.
func (c *ControlPlane) maps(ctx context.Context, def *unstructured.Unstructured) (bool, error) {
	_, err := c.mapper.RESTMapping(ctx, kindOf(def), versionOf(def))
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// kindOf is the kind that a definition defines.
func kindOf(def *unstructured.Unstructured) schema.GroupKind {
	group, _, _ := unstructured.NestedString(def.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(def.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}

// versionOf returns the first version of a definition that is served.
func versionOf(def *unstructured.Unstructured) string {
	versions, _, _ := unstructured.NestedSlice(def.Object, "spec", "versions")
	for _, v := range versions {
		if version, _ := v.(map[string]any); version["served"] == true {
			name, _ := version["name"].(string)
			return name
		}
	}
	return ""
}

// wait polls until done returns true or an error.
func wait(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		ok, err := done()
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		if !Sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(cond any) bool {
		m, _ := cond.(map[string]any)
		return m["type"] == "Established" && m["status"] == "True"
	})
}
