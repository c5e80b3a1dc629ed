package k8swatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/remediate"
)

// A management API may hold the requests of several clusters, and several installations may
// serve it. So an annotation beside the finalizer says who set it, and only that one removes it.

// requestHolder begins the annotation of the requests that this installation holds for this
// cluster.
func (c Config) requestHolder() string { return c.StoreID + "/" + c.Name + "/" }

// heldFor begins what follows in the annotation: the run for which the request is held, as request.Holder writes it.
const heldFor = "run/"

// SetFinalizer sets the finalizer on a request, for a run: it must not vanish while its
// host may be off. It fails if the object is gone, was replaced or is being deleted, or if
// somebody else holds it.
func (r Requests) SetFinalizer(ctx context.Context, q remediate.Request, run string) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	what := fmt.Sprintf("%s %s/%s", q.Kind, q.Namespace, q.Name)
	u, err := r.read(ctx, q)
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", what, err)
	case string(u.GetUID()) != q.UID, u.GetDeletionTimestamp() != nil:
		return fmt.Errorf("set the finalizer of %s: it was replaced or deleted", what)
	}
	finalizers := u.GetFinalizers()
	switch by, is := u.GetAnnotations()[manifest.RequestHolder], slices.Contains(finalizers, manifest.RequestFinalizer); {
	case !is:
		finalizers = append(finalizers, manifest.RequestFinalizer)
	case !strings.HasPrefix(by, r.c.cfg.requestHolder()):
		return fmt.Errorf("set the finalizer of %s: another installation of fenced holds it (its annotation %s is %q): "+
			"if that one is gone, see that the host is on, then remove the finalizer", what, manifest.RequestHolder, bmc.Printable(by, maxMarkValue))
	}
	return r.patchFinalizers(ctx, q, u, finalizers, r.c.cfg.requestHolder()+heldFor+run) // a release that was decided for an earlier run must fail
}

// RemoveFinalizer removes the finalizer that was set as heldBy says; not one that was set anew since. It is
// idempotent.
func (r Requests) RemoveFinalizer(ctx context.Context, q remediate.Request, heldBy string) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	u, err := r.read(ctx, q)
	switch {
	case client.IsGone(err, q.Name), err == nil && (string(u.GetUID()) != q.UID || u.GetAnnotations()[manifest.RequestHolder] != heldBy):
		return nil
	case err != nil:
		return fmt.Errorf("read %s %s/%s: %w", q.Kind, q.Namespace, q.Name, err)
	case !slices.Contains(u.GetFinalizers(), manifest.RequestFinalizer):
		return nil
	}
	left := slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == manifest.RequestFinalizer })
	if err = r.patchFinalizers(ctx, q, u, left, nil); client.IsGone(err, q.Name) {
		return nil
	}
	return err
}

// patchFinalizers writes the finalizers and the annotation of a request as it was read.
func (r Requests) patchFinalizers(ctx context.Context, q remediate.Request, u *unstructured.Unstructured, finalizers []string, heldBy any) error {
	err := r.patchMetadata(ctx, q, map[string]any{
		"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(), "finalizers": finalizers,
		"annotations": map[string]any{manifest.RequestHolder: heldBy},
	})
	if err != nil {
		return fmt.Errorf("change the finalizers of %s %s/%s: %w", q.Kind, q.Namespace, q.Name, err)
	}
	return nil
}

// patchMetadata merges into the metadata of a request.
func (r Requests) patchMetadata(ctx context.Context, q remediate.Request, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	api, err := r.at(ctx, q)
	if err == nil {
		_, err = api.Patch(ctx, q.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}
