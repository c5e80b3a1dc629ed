package k8swatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// request reads the remediation request of the run. Until the isolation nothing may be done without
// it: its check may have given up on it, or it may be gone. So an error counts as one of the whole
// API. After that the host must come back and its Node be restored, whatever the request says: it
// only stays unknown whether another remediator was asked, and whether somebody still asks. // I20, I22
func (l *looker) request(ctx context.Context) error {
	q := l.run.Request
	if q == nil || q.Kind == policy.MachineRequestKind { // the latter is the Machine, which is read anyway
		return nil
	}
	found, err := l.c.Requests().get(ctx, *q)
	l.look.Request, l.look.RequestRead = found, err == nil
	if !l.run.Isolated.IsZero() {
		l.unread, err = err, nil
	}
	return err
}

// givenUpRequest names the check that has given up on the request of the run. It asks
// the next remediator, so this one must stop. // I22
func (l *looker) givenUpRequest(context.Context) (string, error) {
	if q := l.look.Request; q != nil && !q.TimedOut.IsZero() {
		return fmt.Sprintf("its check has given up on %s %s/%s and may ask another remediator", q.Kind, q.Namespace, q.Name), nil
	}
	return "", nil
}

// askedBy reports whether the holder of medik8s' Lease is the check that made the
// request of the run.
func (l *looker) askedBy(who string) bool {
	return madeBy(l.look.Request, firstWord(who))
}

// madeBy reports whether the holder of medik8s' Lease on a Node is the check that made a
// request, and whose next remediator may be another one.
func madeBy(q *policy.Request, holder string) bool {
	check, is := strings.CutPrefix(holder, medik8sHolder)
	return is && q != nil && slices.ContainsFunc(q.Owners, func(o policy.Owner) bool {
		return o.Kind == policy.NodeHealthCheckKind && o.Name == check
	})
}

// firstWord is the holder in a sentence about a Lease.
func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}

// Requests writes what fenced tells the remediation requests that it carries out.
type Requests struct{ c *Cluster }

// Requests returns what writes to the requests of the cluster.
func (c *Cluster) Requests() Requests { return Requests{c} }

// at is where a request is.
func (r Requests) at(ctx context.Context, q remediate.Request) (dynamic.ResourceInterface, error) {
	s, gvr := r.c.servers.Work, client.RequestGVR
	if q.OnManagementAPI {
		s = r.c.servers.Manage
	}
	if q.Kind == metal3Requests.Kind {
		var err error
		if gvr, err = s.Find(ctx, client.Resource{Kind: metal3Requests.Kind, Group: metal3Requests.Group, AnyVersion: true}); err != nil {
			return nil, err
		}
	}
	return s.API().Dynamic.Resource(gvr).Namespace(q.Namespace), nil
}

func (r Requests) read(ctx context.Context, q remediate.Request) (*unstructured.Unstructured, error) {
	api, err := r.at(ctx, q)
	if err != nil {
		return nil, err
	}
	group := ownRequests.Group
	if q.Kind == metal3Requests.Kind {
		group = metal3Requests.Group
	}
	return client.ReadCustom(ctx, api, group, q.Namespace, q.Name)
}

// get reads a request; nil if it is gone or was replaced.
func (r Requests) get(ctx context.Context, q remediate.Request) (*policy.Request, error) {
	u, err := r.read(ctx, q)
	if client.IsGone(err, q.Name) || err == nil && string(u.GetUID()) != q.UID {
		return nil, nil
	}
	var found any
	if err == nil {
		found, err = r.c.cfg.convertRequest(q.OnManagementAPI)(u)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", q.Kind, q.Namespace, q.Name, err)
	}
	return found.(*policy.Request), nil
}

// TemplateAttempts is how many power cycles fenced's own template of a check allows; 0 leaves that to the
// configuration. The template need not exist where fenced itself evaluates the check.
func (r Requests) TemplateAttempts(ctx context.Context, check *policy.Check, t policy.Template, target remediate.Target) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	h, namespace := Handovers(r), cmp.Or(templateNamespace(check, t), target.Namespace)
	u, err := h.template(ctx, h.sideFor(check, target.MachineAPI), t, namespace)
	switch {
	case errors.Is(err, client.ErrNotInstalled), client.IsGone(err, t.Name):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read %s %s/%s: %w", t.Kind, namespace, t.Name, err)
	}
	return manifest.TemplateAttempts(u.Object)
}

// ClearStale removes the annotation that requests the remediation of a Machine
// whose Node is Ready without it. It does nothing if another remediator may have begun:
// without the annotation that one would leave the host off. // I22
func (r Requests) ClearStale(ctx context.Context, t remediate.Target) (removed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	who, err := r.c.leaders.at(ctx, r.c.work.API(), machineAPINamespace, powerCycleLeader)
	if err != nil || who != "" {
		return false, err
	}
	u, err := r.c.servers.Machine(ctx, t)
	switch {
	case client.IsGone(err, t.Machine), err == nil && string(u.GetUID()) != t.MachineUID:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read Machine %s: %w", t.MachineKey(), err)
	}
	for key := range u.GetAnnotations() {
		if strings.HasPrefix(key, startedMarks) {
			return false, fmt.Errorf("clear the request of Machine %s: its annotation %s says that another remediator has begun; "+
				"let that one finish, or remove its annotations", t.MachineKey(), key)
		}
	}
	n, err := r.c.work.API().Node(ctx, t.Node)
	if err != nil {
		return false, fmt.Errorf("read Node %s: %w", t.Node, err)
	}
	if !policyNode(n).Ready() {
		return false, nil
	}
	err = clearRequest(ctx, r.c.work.API(), t)
	return err == nil, err
}

// startedMarks begins the annotations that OpenShift's bare-metal actuator leaves on a
// Machine whose host it has begun to switch.
const startedMarks = "remediation.metal3.io/"
