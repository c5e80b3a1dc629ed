package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// Handovers makes the remediation requests of checks in place of their own
// controllers. It changes only objects with the UID and the mark of a record.
type Handovers struct {
	servers    *client.Servers
	carriesOut func(schema.GroupKind) bool
	gate       func(*policy.Check) *policy.Check
}

// NewHandovers returns what makes the requests for other remediators in a cluster. carriesOut reports whether fenced
// carries out the requests of a kind; gate makes a check Invalid whose requests the view has not read.
func NewHandovers(servers *client.Servers, carriesOut func(schema.GroupKind) bool, gate func(*policy.Check) *policy.Check) Handovers {
	return Handovers{servers, carriesOut, gate}
}

// maxTemplate is how large a template may be, as JSON.
const maxTemplate = 256 << 10

// handoverRights are what fenced needs for the requests of a template.
var handoverRights = []string{"get", "list", "watch", "create", "patch", "delete"}

// Missing says why no request can be made from a template of a check: the template or
// a kind does not exist, fenced has no right to it, or its requests have not been listed.
// "" if one can. An error means that this could not be read.
func (h Handovers) Missing(ctx context.Context, check *policy.Check, t policy.Template) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	s, kind := h.sideFor(check, ""), t.Kind+" of "+t.APIVersion
	asked, version := client.RequestOf(t)
	if asked.Group == "" {
		return "", nil // the check is Invalid for that
	}
	if check.Kind != policy.FencePolicyKind && check.Source != "" && check.Source != "cluster" {
		return "a check from a file cannot be handed over to fenced, except a FencePolicy; annotate the check in the cluster", nil
	}
	if h.carriesOut(asked) {
		return fmt.Sprintf("fenced itself carries out every %s in this cluster (clusters[].metal3Remediations); use a FencedRemediationTemplate", asked.Kind), nil
	}
	for _, need := range []schema.GroupKind{{Group: asked.Group, Kind: t.Kind}, asked} {
		_, err := s.Find(ctx, client.Resource{Kind: need.Kind, Group: need.Group, Versions: []string{version}, AnyVersion: true})
		if errors.Is(err, client.ErrNotInstalled) {
			return fmt.Sprintf("the kind %s is not installed; install the remediator of the template %s, or change the check", need, t.Name), nil
		}
		if err != nil {
			return "", err
		}
	}
	namespace := templateNamespace(check, t)
	if namespace != "" { // else the Machine decides where it is
		switch _, err := h.template(ctx, s, t, namespace); {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("there is no %s %s/%s; create it, or change the template of the check", kind, namespace, t.Name), nil
		case apierrors.IsForbidden(err):
			return fmt.Sprintf("fenced may not read %s %s/%s; see configs/kubernetes/templates.yaml", kind, namespace, t.Name), nil
		case err != nil:
			return "", err
		}
	}
	if why, err := h.forbidden(ctx, s, asked, version, namespace); why != "" || err != nil {
		return why, err
	}
	if _, err := s.API().Identity(ctx); apierrors.IsForbidden(err) {
		return fmt.Sprintf("fenced may not get Namespace %s, by which it knows the cluster of its requests again; see configs/kubernetes/templates.yaml", client.IdentityNamespace), nil
	} else if err != nil {
		return "", err
	}
	if gated := h.gate(check); gated.Invalid != "" {
		return gated.Invalid, nil
	}
	return "", nil
}

// forbidden says which right to the requests fenced lacks.
func (h Handovers) forbidden(ctx context.Context, s *client.Server, kind schema.GroupKind, version, namespace string) (string, error) {
	gvr, err := s.Find(ctx, client.Resource{Kind: kind.Kind, Group: kind.Group, Versions: []string{version}, AnyVersion: true})
	if err != nil {
		return "", err
	}
	for _, verb := range handoverRights {
		err := s.API().Allows(ctx, authorizationv1.ResourceAttributes{Verb: verb, Group: gvr.Group, Resource: gvr.Resource, Namespace: namespace})
		switch {
		case apierrors.IsForbidden(err):
			return fmt.Sprintf("fenced may not %s %s; grant it, as in configs/kubernetes/templates.yaml", verb, gvr.GroupResource()), nil
		case err != nil:
			return "", err
		}
	}
	return "", nil
}

// sideFor is where the requests of a check are. A FencePolicy makes them where the
// Machine is.
func (h Handovers) sideFor(check *policy.Check, machineAPI string) *client.Server {
	if check.Kind == policy.FencePolicyKind && !check.SelectsNodes {
		if machineAPI == "" {
			return h.servers.Manage
		}
		return h.servers.Of(machineAPI)
	}
	return h.servers.Of(check.APIVersion)
}

// templateNamespace is the namespace of a template; "" if the Machine decides.
func templateNamespace(check *policy.Check, t policy.Template) string {
	if check.SelectsNodes {
		return t.Namespace
	}
	return check.Namespace
}

// template reads a template.
func (h Handovers) template(ctx context.Context, s *client.Server, t policy.Template, namespace string) (*unstructured.Unstructured, error) {
	gv, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil {
		return nil, err
	}
	gvr, err := s.Find(ctx, client.Resource{Kind: t.Kind, Group: gv.Group, Versions: []string{gv.Version}, AnyVersion: true})
	if err != nil {
		return nil, err
	}
	return client.ReadCustom(ctx, s.API().Dynamic.Resource(gvr).Namespace(namespace), gv.Group, namespace, t.Name)
}

// prepared is what a request is made from.
type prepared struct {
	body *unstructured.Unstructured
	api  dynamic.ResourceInterface
}

// Prepare reads what the request for a target is made from, by the rules of the check's API family.
func (h Handovers) Prepare(ctx context.Context, check *policy.Check, t remediate.Target, from policy.Template, controlPlane bool) (request.Draft, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	d := draft{check: check, target: t, from: from, namespace: templateNamespace(check, from)}
	if d.namespace == "" {
		d.namespace = t.Namespace
	}
	var err error
	if d.live, err = h.liveCheck(ctx, check); err != nil {
		return request.Draft{}, err
	}
	if t.Machine != "" {
		if d.machine, err = h.servers.Machine(ctx, t); err != nil {
			return request.Draft{}, fmt.Errorf("read Machine %s: %w", t.MachineKey(), err)
		}
		if string(d.machine.GetUID()) != t.MachineUID {
			return request.Draft{}, fmt.Errorf("the Machine %s was replaced", t.MachineKey())
		}
	}
	s := h.sideFor(check, t.MachineAPI)
	d.together = s == h.servers.Of(t.MachineAPI)
	if d.template, err = h.template(ctx, s, from, d.namespace); err != nil {
		return request.Draft{}, fmt.Errorf("read the template %s %s/%s: %w", from.Kind, d.namespace, from.Name, err)
	}
	body, err := d.request(controlPlane)
	if err != nil {
		return request.Draft{}, err
	}
	api, err := h.requestsOf(ctx, s, body.GetAPIVersion(), body.GetKind(), d.namespace)
	if err != nil {
		return request.Draft{}, err
	}
	on, err := s.API().Identity(ctx)
	if err != nil {
		return request.Draft{}, err
	}
	return request.Draft{Create: prepared{body, api}.create, Object: request.Object{
		APIVersion: body.GetAPIVersion(), Kind: body.GetKind(), Namespace: d.namespace, Name: body.GetName(), OnManagementAPI: s.IsApart(), On: on, Template: from.Name,
	}}, nil
}

// create makes the request with the mark of its record. It never takes over an object that exists.
func (d prepared) create(ctx context.Context, o request.Object, check string) (uid string, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	marks := d.body.GetAnnotations()
	marks[manifest.RequestCheck], marks[manifest.RequestMadeBy] = check, o.Mark
	d.body.SetAnnotations(marks)
	made, err := d.api.Create(ctx, d.body, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		return d.existing(ctx, o)
	case client.IsRefused(err), apierrors.IsNotFound(err):
		return "", fmt.Errorf("create %s: %w (%w)", o, err, request.ErrNotMade)
	case err != nil:
		return "", fmt.Errorf("create %s: %w", o, err)
	}
	return string(made.GetUID()), nil
}

// existing returns the UID of an object that exists already, if it is the one that was to be made:
// the answer to its creation was lost.
func (d prepared) existing(ctx context.Context, o request.Object) (uid string, err error) {
	u, err := client.ReadCustom(ctx, d.api, client.GroupOf(o.APIVersion), o.Namespace, o.Name)
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s, which exists: %w", o, err)
	case !carriesMark(u, o):
		return "", fmt.Errorf("%s exists already, and fenced did not make it; when its remediator is done, delete it: %w", o, request.ErrNotMade)
	}
	return string(u.GetUID()), nil
}

// fieldManager names fenced as a writer of requests.
const fieldManager = "fenced"

// liveCheck reads a check and refuses one that is not fenced's any more. It is nil for
// a check from a file.
func (h Handovers) liveCheck(ctx context.Context, check *policy.Check) (*unstructured.Unstructured, error) {
	if check.UID == "" {
		return nil, nil
	}
	var api dynamic.ResourceInterface
	switch client.GroupOf(check.APIVersion) {
	case client.Medik8sGroup:
		api = h.servers.Work.API().Dynamic.Resource(client.NodeCheckGVR)
	case client.ClusterGroup:
		api = h.servers.ClusterResource("machinehealthchecks", check.Namespace)
	default:
		api = h.servers.Work.API().Dynamic.Resource(client.CheckGVR).Namespace(check.Namespace)
	}
	u, err := client.ReadCustom(ctx, api, client.GroupOf(check.APIVersion), check.Namespace, check.Name)
	if err != nil {
		return nil, fmt.Errorf("read check %s: %w", check.Key(), err)
	}
	_, paused := u.GetAnnotations()["cluster.x-k8s.io/paused"]
	if string(u.GetUID()) != check.UID || u.GetAnnotations()["fenced.io/evaluator"] != check.Evaluator || paused != check.Paused {
		return nil, fmt.Errorf("check %s is not handed over any more", check.Key())
	}
	return u, nil
}

// requestsOf is where requests of a kind are.
func (h Handovers) requestsOf(ctx context.Context, s *client.Server, apiVersion, kind, namespace string) (dynamic.ResourceInterface, error) {
	_, version, _ := strings.Cut(apiVersion, "/")
	gvr, err := s.Find(ctx, client.Resource{Kind: kind, Group: client.GroupOf(apiVersion), Versions: []string{version}, AnyVersion: true})
	if err != nil {
		return nil, fmt.Errorf("find the kind %s of %s: %w", kind, apiVersion, err)
	}
	return s.API().Dynamic.Resource(gvr).Namespace(namespace), nil
}

// carriesMark says whether an object has exactly the mark of a record: of this installation, for this
// cluster, for this target. // I22
func carriesMark(u *unstructured.Unstructured, o request.Object) bool {
	return o.Mark != "" && u.GetAnnotations()[manifest.RequestMadeBy] == o.Mark
}

// TimeOut tells the remediator of a request to stop, as medik8s does. It returns false if nothing was
// written, as Delay and Delete do.
func (h Handovers) TimeOut(ctx context.Context, o request.Object) (wrote bool, err error) {
	return h.annotate(ctx, o, manifest.RequestTimedOut)
}

// Delay notes on a request that its target recovered now, as medik8s does.
func (h Handovers) Delay(ctx context.Context, o request.Object) (wrote bool, err error) {
	return h.annotate(ctx, o, manifest.RequestHealthyDelay)
}

// annotate notes the present time on a request, unless a time is there.
func (h Handovers) annotate(ctx context.Context, o request.Object, key string) (wrote bool, err error) {
	return h.change(ctx, o, func(ctx context.Context, api dynamic.ResourceInterface, u *unstructured.Unstructured) (bool, error) {
		if u.GetAnnotations()[key] != "" {
			return false, nil
		}
		err := patchMetadata(ctx, api, o.Name, map[string]any{
			"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(),
			"annotations": map[string]string{key: time.Now().UTC().Format(time.RFC3339)},
		})
		return err == nil, err
	})
}

// Delete deletes a request. If its conditions have changed since it was read, it
// deletes nothing: the remediator may have begun. // I2, I22
func (h Handovers) Delete(ctx context.Context, o request.Object, live *policy.Request) (wrote bool, err error) {
	return h.change(ctx, o, func(ctx context.Context, api dynamic.ResourceInterface, u *unstructured.Unstructured) (bool, error) {
		now, err := manifest.Request(u.Object)
		if err != nil || now.Begun != live.Begun || !reflect.DeepEqual(now.Conditions, live.Conditions) {
			return false, err
		}
		uid, version := u.GetUID(), u.GetResourceVersion()
		err = api.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		return err == nil, err
	})
}

// change reads the object of a record and changes it, if it has the UID and the mark of the record.
func (h Handovers) change(ctx context.Context, o request.Object,
	do func(context.Context, dynamic.ResourceInterface, *unstructured.Unstructured) (wrote bool, err error),
) (wrote bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	api, u, err := h.object(ctx, o)
	if errors.Is(err, request.ErrNotServed) {
		return false, nil
	}
	if err != nil || u == nil || o.UID == "" || !carriesMark(u, o) {
		return false, err
	}
	wrote, err = do(ctx, api, u)
	if err != nil && !client.IsGone(err, o.Name) && !apierrors.IsConflict(err) { // after a conflict the next read shows what is new
		return false, fmt.Errorf("change %s: %w", o, err)
	}
	return wrote, nil
}

// Read reads what may be the object of a record; nil if it does not exist.
// The error is an request.ErrNotServed if the API server does not serve the kind.
func (h Handovers) Read(ctx context.Context, o request.Object) (*policy.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	_, u, err := h.object(ctx, o)
	if err != nil || u == nil {
		return nil, err
	}
	q, err := manifest.Request(u.Object)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", o, err)
	}
	return &q, nil
}

// object reads the object of a record. It is nil if it does not exist. Only an answer of the cluster in
// which it was made says so: a kubeconfig may point to another one now, and the management API may
// have been added, moved or taken away. // I22
func (h Handovers) object(ctx context.Context, o request.Object) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	s := h.servers.Work
	if o.OnManagementAPI {
		if s = h.servers.Manage; !s.IsApart() {
			return nil, nil, fmt.Errorf("%s was made on the management API, and the configuration names none now; name it again, or give the record up", o)
		}
	}
	cl := s.API()
	api, u, err := h.find(ctx, s, o)
	if err != nil && !errors.Is(err, request.ErrNotServed) || u != nil {
		return api, u, err
	}
	switch on, unknown := cl.Identity(ctx); {
	case unknown != nil:
		return nil, nil, fmt.Errorf("%s was not found: %w", o, unknown)
	case on != o.On || s.API() != cl:
		return nil, nil, fmt.Errorf("%s was made in the cluster whose Namespace %s has the UID %s, and the kubeconfig points to the one with %s; point it to the former again, or give the record up",
			o, client.IdentityNamespace, o.On, on)
	}
	return nil, nil, err
}

// find reads the object of a record; nil if it is not there.
func (h Handovers) find(ctx context.Context, s *client.Server, o request.Object) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	api, err := h.requestsOf(ctx, s, o.APIVersion, o.Kind, o.Namespace)
	if errors.Is(err, client.ErrNotInstalled) {
		return nil, nil, fmt.Errorf("%w: %s of %s", request.ErrNotServed, o.Kind, o.APIVersion)
	}
	if err != nil {
		return nil, nil, err
	}
	u, err := client.ReadCustom(ctx, api, client.GroupOf(o.APIVersion), o.Namespace, o.Name)
	switch {
	case client.IsGone(err, o.Name):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read %s: %w", o, err)
	case !o.MayBe(string(u.GetUID()), u.GetAnnotations()[manifest.RequestMadeBy]):
		return nil, nil, nil
	}
	return api, u, nil
}

// TemplateAttempts is how many power cycles fenced's own template of a check allows; 0 leaves that to the
// configuration. The template need not exist where fenced itself evaluates the check.
func (h Handovers) TemplateAttempts(ctx context.Context, check *policy.Check, t policy.Template, target remediate.Target) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	namespace := cmp.Or(templateNamespace(check, t), target.Namespace)
	u, err := h.template(ctx, h.sideFor(check, target.MachineAPI), t, namespace)
	switch {
	case errors.Is(err, client.ErrNotInstalled), client.IsGone(err, t.Name):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read %s %s/%s: %w", t.Kind, namespace, t.Name, err)
	}
	return manifest.TemplateAttempts(u.Object)
}
