package write

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// maxBackup is the size of the largest Node that is saved, in bytes of JSON. etcd
// accepts 1.5 MiB by default, but of protobuf; in JSON the same Node is larger. A
// run keeps two backups of one Node, and both fit into a record of the
// store. // I21
const maxBackup = 29 << 20 / 10

// Errors of a Secret.
var (
	ErrSecretMissing    = errors.New("the Secret does not exist")
	ErrSecretIncomplete = errors.New("the Secret has no username or no password")
)

// Runs does the writes of runs, and the reads that only these need.
type Runs struct {
	servers *client.Servers
	never   neverRestore
}

// NewRuns returns what does the writes of runs. never are patterns of keys that a Node does not get back.
func NewRuns(servers *client.Servers, never []string) *Runs {
	return &Runs{servers: servers, never: never}
}

// Backup reads the whole Node with an uncached read, as JSON, including fields
// that this program does not know. It fails if the Node's UID is not that of the
// target. // I2, I21
func (w *Runs) Backup(ctx context.Context, t remediate.Target) ([]byte, remediate.Backup, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	data, err := w.servers.Work.API().Typed.Core.Get().Resource("nodes").Name(t.Node).
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, remediate.Backup{}, fmt.Errorf("read Node %s: %w", t.Node, err)
	}
	if len(data) > maxBackup {
		return nil, remediate.Backup{}, fmt.Errorf("read Node %s: it has %d bytes of JSON, more than the %d that can be saved", t.Node, len(data), maxBackup)
	}
	var n corev1.Node
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, remediate.Backup{}, fmt.Errorf("read Node %s: %w", t.Node, err)
	}
	if t.NodeUID != "" && string(n.UID) != t.NodeUID { // I2
		return nil, remediate.Backup{}, fmt.Errorf("read Node %s: its UID is not that of the target", t.Node)
	}
	if n.Kind != "Node" || n.Name != t.Node || n.UID == "" || n.ResourceVersion == "" {
		return nil, remediate.Backup{}, fmt.Errorf("read Node %s: the answer is another object", t.Node)
	}
	return data, remediate.Backup{UID: string(n.UID), ResourceVersion: n.ResourceVersion}, nil
}

// Act does one write of a run, other than Restore. Each write has the UID, and where needed the
// resourceVersion, of the decision as its precondition. Act is idempotent: if the
// cluster is already in the wanted state, it returns nil. // I2
func (w *Runs) Act(ctx context.Context, run remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	if a.Destructive() {
		ctx = client.Revocable(client.WithoutRetry(ctx)) // else it may be done when the run has gone on, and the host is on again // I1
	}
	api, manage := w.servers.Work.API(), w.servers.Manage.API()
	switch a {
	case remediate.SetPowerLock:
		return setPowerLock(ctx, manage, run.Target.BareMetalHost, run.Target.BareMetalHostUID, holdValue)
	case remediate.ReleasePowerLock:
		return setPowerLock(ctx, manage, run.Target.BareMetalHost, "", nil)
	case remediate.IsolateNode:
		if b.UID == "" || b.UID != run.Target.NodeUID || b.ResourceVersion == "" {
			return fmt.Errorf("isolate Node %s: there is no backup of this Node", run.Target.Node)
		}
		if run.Isolation == remediate.IsolateTaint {
			return taint(ctx, api, run.Target.Node, b)
		}
		return deleteNode(ctx, api, run.Target.Node, b)
	case remediate.ReleasePods:
		return releasePods(ctx, api, run)
	case remediate.ClearRequest:
		return clearRequest(ctx, api, run.Target)
	case remediate.DeleteTargetMachine:
		if client.GroupOf(run.Target.MachineAPI) == client.ClusterGroup {
			return w.mark(ctx, run)
		}
		return deleteMachine(ctx, api, run.Target)
	}
	return fmt.Errorf("action %s is not one of the cluster", a)
}

// setPowerLock sets our power lock on a BareMetalHost, or removes it if value is
// nil. Its owner switches the host off for it, so another host of that name must
// not get it; the uid is empty where any may lose it. // I2
func setPowerLock(ctx context.Context, cl *client.Conn, key, uid string, value any) error {
	ctx, cancel := client.WithWriteTimeout(ctx)
	defer cancel()
	ns, name, _ := strings.Cut(key, "/")
	meta := map[string]any{"annotations": map[string]any{policy.PowerLockAnnotation: value}}
	if uid != "" {
		meta["uid"] = uid
	}
	err := patchMetadata(ctx, cl.Dynamic.Resource(client.HostGVR).Namespace(ns), name, meta)
	if value == nil && client.IsGone(err, name) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("annotate BareMetalHost %s with %s: %w", key, policy.PowerLockAnnotation, err)
	}
	return nil
}

// patchMetadata merges into the metadata of an object.
func patchMetadata(ctx context.Context, api dynamic.ResourceInterface, name string, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err == nil {
		_, err = api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// unlessGone is the error of a write after which an object is to be gone, or to have lost something.
func unlessGone(err error, name, what string) error {
	if err == nil || client.IsGone(err, name) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func deleteNode(ctx context.Context, cl *client.Conn, name string, b remediate.Backup) error {
	ctx, cancel := client.WithWriteTimeout(ctx)
	defer cancel()
	uid := types.UID(b.UID)
	err := cl.Typed.Nodes().Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &b.ResourceVersion},
	})
	return unlessGone(err, name, "delete Node "+name)
}

func taint(ctx context.Context, cl *client.Conn, name string, b remediate.Backup) error {
	n, err := nodeAgain(ctx, cl, name)
	if err != nil {
		return fmt.Errorf("taint Node %s: %w", name, err)
	}
	if string(n.UID) != b.UID || n.ResourceVersion != b.ResourceVersion {
		return fmt.Errorf("taint Node %s: it has changed since the backup", name)
	}
	if client.HasTaint(n.Spec.Taints, client.OutOfService) {
		return nil
	}
	_, err = patchNode(ctx, cl, n, change{taints: append(n.Spec.Taints, client.OutOfService)}, "taint")
	return err
}

// nodeAgain reads the Node before a change.
func nodeAgain(ctx context.Context, cl *client.Conn, name string) (*corev1.Node, error) {
	ctx, cancel := client.WithReadTimeout(ctx)
	defer cancel()
	return cl.Node(ctx, name)
}

// patchNode changes the Node and returns the result.
func patchNode(ctx context.Context, cl *client.Conn, n *corev1.Node, ch change, verb string) (*corev1.Node, error) {
	ctx, cancel := client.WithWriteTimeout(ctx)
	defer cancel()
	patch, err := ch.patch(n)
	var changed *corev1.Node
	if err == nil {
		changed, err = cl.Typed.Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("%s Node %s: %w", verb, n.Name, err)
	}
	return changed, nil
}

func clearRequest(ctx context.Context, cl *client.Conn, t remediate.Target) error {
	if t.MachineUID == "" {
		return fmt.Errorf("change Machine %s/%s: its UID is not known", t.Namespace, t.Machine)
	}
	ctx, cancel := client.WithWriteTimeout(ctx)
	defer cancel()
	err := patchMetadata(ctx, cl.Dynamic.Resource(client.MachineGVR).Namespace(t.Namespace), t.Machine,
		map[string]any{"uid": t.MachineUID, "annotations": map[string]any{manifest.RemediationAnnotation: nil}})
	return unlessGone(err, t.Machine, "remove "+manifest.RemediationAnnotation+" from Machine "+t.MachineKey())
}

func deleteMachine(ctx context.Context, cl *client.Conn, t remediate.Target) error {
	if t.MachineUID == "" {
		return fmt.Errorf("delete Machine %s/%s: its UID is not known", t.Namespace, t.Machine)
	}
	ctx, cancel := client.WithWriteTimeout(ctx)
	defer cancel()
	uid := types.UID(t.MachineUID)
	err := cl.Dynamic.Resource(client.MachineGVR).Namespace(t.Namespace).Delete(ctx, t.Machine,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	return unlessGone(err, t.Machine, "delete Machine "+t.MachineKey())
}

// Credentials reads the user name and password of a BMC. It removes surrounding
// white space, as Metal3 does. The error wraps ErrSecretMissing or
// ErrSecretIncomplete where these apply.
func (w *Runs) Credentials(ctx context.Context, namespace, name string) (string, bmc.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	s, err := w.servers.Manage.API().Typed.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if client.IsGone(err, name) {
		return "", bmc.Secret{}, fmt.Errorf("read Secret %s/%s: %w", namespace, name, ErrSecretMissing)
	}
	if apierrors.IsForbidden(err) {
		return "", bmc.Secret{}, fmt.Errorf("read Secret %[1]s/%[2]s: %[3]w: in the namespace %[1]s the ClusterRole fenced-secrets is not bound; "+
			"run fencectl init and its script again, or bind it there as rbac.yaml says", namespace, name, err)
	}
	if err != nil {
		return "", bmc.Secret{}, fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
	}
	user, password := strings.TrimSpace(string(s.Data["username"])), strings.TrimSpace(string(s.Data["password"]))
	if user == "" || password == "" {
		return "", bmc.Secret{}, fmt.Errorf("read Secret %s/%s: %w", namespace, name, ErrSecretIncomplete)
	}
	return user, bmc.NewSecret(password), nil
}

// holdValue is that of the annotation with which we request that the power owner keeps
// the host off. The bare-metal operator also powers the host off for it, hard.
const holdValue = `{"mode":"hard"}`

// Bounds of one release.
const (
	releaseAtMost = 200 // pods, and as many VolumeAttachments; the next look asks for the rest
	releaseAtOnce = 8   // requests
)

// releasePods deletes the pods and the VolumeAttachments of the isolated Node, so
// that others take their place without waiting for controllers. A pod is forced
// out: the host that ran it is proven off. Each object is deleted by its UID. The
// Node is read after the lists: if it is still as the isolation left it, each pod
// in them was bound to it before, and none to a Node that registered since.
// // I2, I7
func releasePods(ctx context.Context, cl *client.Conn, run remediate.Run) error {
	node := run.Target.Node
	if run.Isolated.IsZero() {
		return fmt.Errorf("release the pods of Node %s: its isolation is not on the record", node)
	}
	reading, cancel := client.WithReadTimeout(ctx)
	defer cancel()
	pods, _, err := cl.PodsOf(reading, node)
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName != node || !client.IsReleasable(&p, run.Isolation) })
	attachments, attachmentsErr := cl.AttachmentsOf(reading, node)
	if err := stillIsolated(reading, cl, run); err != nil {
		return errors.Join(fmt.Errorf("release the pods of Node %s: %w", node, err), attachmentsErr)
	}
	writing, cancel := client.WithWriteTimeout(ctx)
	defer cancel()
	podsErr := releaseEach(pods, func(p *corev1.Pod) error { return releasePod(writing, cl, p) })
	return errors.Join(podsErr, attachmentsErr,
		releaseEach(attachments, func(a *storagev1.VolumeAttachment) error { return releaseAttachment(writing, cl, a) }))
}

// releaseEach releases the first of the objects, some at once. It returns one of
// the errors.
func releaseEach[T any](list []T, release func(*T) error) (first error) {
	var g sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, releaseAtOnce)
	for i := range list[:min(len(list), releaseAtMost)] {
		places <- struct{}{}
		g.Go(func() {
			defer func() { <-places }()
			err := release(&list[i])
			mu.Lock()
			defer mu.Unlock()
			first = cmp.Or(first, err)
		})
	}
	g.Wait()
	return first
}

// stillIsolated returns an error unless the Node is as the isolation left it, in the cluster in which the run began: a kubeconfig may lead
// to another one since the look, where a name says nothing. // I27
func stillIsolated(ctx context.Context, cl *client.Conn, run remediate.Run) error {
	if began := run.Target.ClusterUID; began != "" {
		switch uid, err := cl.Identity(ctx); {
		case err != nil:
			return err
		case uid != began:
			return errors.New("the kubeconfig leads to another cluster than the one in which the run began")
		}
	}
	n, err := cl.Node(ctx, run.Target.Node)
	seen := remediate.Node{Exists: remediate.No}
	switch {
	case client.IsGone(err, run.Target.Node):
	case err != nil:
		return err
	default:
		seen = client.ObservedNode(n)
	}
	switch {
	case remediate.StillIsolated(run, seen):
		return nil
	case run.Isolation != remediate.IsolateTaint:
		return errors.New("a Node of this name exists again")
	}
	return errors.New("the tainted Node is gone or is being deleted, it is another one, or it has booted since")
}

// releasePod forces a pod out.
func releasePod(ctx context.Context, cl *client.Conn, p *corev1.Pod) error {
	now := int64(0)
	err := cl.Typed.Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	return unlessGone(err, p.Name, "delete pod "+p.Namespace+"/"+p.Name)
}

func releaseAttachment(ctx context.Context, cl *client.Conn, a *storagev1.VolumeAttachment) error {
	err := cl.Typed.VolumeAttachments().Delete(ctx, a.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID}})
	return unlessGone(err, a.Name, "delete VolumeAttachment "+a.Name)
}
