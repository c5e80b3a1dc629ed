package look

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// nodeLeases is the namespace of the kubelets' heartbeats.
const nodeLeases = "kube-node-lease"

// Reader reads one cluster past the cache.
type Reader struct {
	Servers *client.Servers
	View    View
	Leaders *Leaders
	Shared  *client.SharedReads // what is the same for all looks of one moment
	Locks   NodeLocks
	// Request reads a remediation request; nil if it is gone.
	Request func(context.Context, remediate.Request) (*policy.Request, error)
	// Restored compares a Node with what was saved of it; IsMarked tells whether the owner of a Machine was asked to replace it.
	Restored func(run remediate.Run, backups [][]byte, live *corev1.Node) (readBack []string, all bool, err error)
	IsMarked func(machine *unstructured.Unstructured) bool
	// DeleteControlPlaneMachines allows the deletion of a control-plane Machine if
	// a controller that recreates it owns it.
	DeleteControlPlaneMachines bool
}

// View is what a look asks the cached view: which checks there are, and where requests for the target may be.
type View interface {
	EachCheck(visit func(*policy.Check))
	Unread(check *policy.Check) string
	RequestPlaces(machine *policy.Machine, node *policy.Node) []view.Place
	CarriesOut(kind schema.GroupKind) bool
	NotOlder(at *client.Server, kind, group, namespace string) metav1.ListOptions
}

// NodeLocks are medik8s' Leases on Nodes.
type NodeLocks interface {
	HasLeases(ctx context.Context) (bool, error)
	Foreign(ctx context.Context, api *client.Conn, node string) (string, error)
	MayLock(ctx context.Context, api *client.Conn, node string, exists bool, notRead error) error
	AskedBy(q *policy.Request, who string) bool
}

// Look is the result of the uncached reads of one step of a run.
type Look struct {
	Seen         remediate.Observation // the part about the cluster
	FreshNode    *policy.Node          // nil if it does not exist or was not read
	FreshMachine *policy.Machine
	// Cluster is the Cluster of a Cluster API Machine; nil if there is none.
	Cluster *policy.Cluster
	// Members are the members of etcd, read for a control-plane target. Their
	// absence counts only if MembersKnown. // I12
	Members      []policy.Member
	MembersKnown bool
	Lease        policy.Lease
	// Request is the remediation request of the run; nil if it is gone, or if there is
	// none. It counts only if RequestRead.
	Request     *policy.Request
	RequestRead bool
	// NoNodeLocks: the cluster has no Leases on Nodes, so LockNode would have nothing to take.
	NoNodeLocks bool
	// PodsLeft are some of the pods that are bound to the Node's name.
	PodsLeft []string
	Err      error // all read errors
}

// looker reads the parts of a Look in parallel.
type looker struct {
	r            *Reader
	work, manage *client.Conn
	run          remediate.Run

	mu   sync.Mutex // guards errs and the name of another remediator; each other field has one writer
	errs []error
	look Look
	live *corev1.Node
	// external: the host is externally provisioned. The Machine is read at the same
	// time, so the result is kept here for replaceable.
	external bool
	// owned is the target's BareMetalHost, consumer its expected consumerRef.
	owned    *policy.Host
	consumer string
	ahead    ahead
	// unread is why the request of a run that has isolated its Node could not be read.
	unread error
	// medik8sLeases answers whether the namespace of medik8s' Leases exists. The whole look
	// asks once, after it began.
	medik8sLeases func() (bool, error)
}

// Look reads the Node, Lease, Machine, BareMetalHost, pods and other remediators'
// Leases of a run, without any cache. What cannot be read stays unknown; a 404 of
// the API server is an answer. nil backups mean that they could not be read.
func (r *Reader) Look(ctx context.Context, run remediate.Run, backups [][]byte) Look {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	l := &looker{r: r, work: r.Servers.Work.API(), manage: r.Servers.Manage.API(), run: run, consumer: run.Target.Namespace + "/" + run.Target.Machine}
	l.medik8sLeases = sync.OnceValues(func() (bool, error) { return r.Locks.HasLeases(ctx) })
	var g sync.WaitGroup
	for _, read := range []func(context.Context) error{l.node, l.lease, l.machine, l.host, l.pods, l.volumes, l.members, l.mayIsolate, l.request, l.identity, l.managementIdentity} {
		g.Go(func() { l.addError(read(ctx)) })
	}
	l.readAhead(ctx, &g)
	g.Wait()
	l.addError(l.lateNode(ctx))
	l.addError(l.restored(backups))
	l.look.Seen.Lease.KubeletReporting = l.look.FreshNode.KubeletReporting()
	for _, read := range []func(context.Context) error{l.cluster, l.otherRemediators} { // these need the Machine
		g.Go(func() { l.addError(read(ctx)) })
	}
	g.Wait()
	l.powerOwner()
	l.replaceable()
	if l.work != r.Servers.Work.API() || l.manage != r.Servers.Manage.API() { // the reads may be of two clusters // I27
		l.look.Seen.ClusterUID, l.look.Seen.ManagementUID = "", ""
		l.addError(errors.New("a kubeconfig changed during the look"))
	}
	l.look.Err = errors.Join(append(slices.Clone(l.errs), l.unread)...)
	l.look.Seen.API = apiState(l.errs)
	return l.look
}

// addError records a read error.
func (l *looker) addError(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// identity reads which cluster answers. A run does nothing destructive in a cluster other than the
// one in which it began: the same names may exist there. // I2
func (l *looker) identity(ctx context.Context) (err error) {
	l.look.Seen.ClusterUID, err = l.sameCluster(ctx, l.r.Servers.Work, l.run.Target.ClusterUID)
	return err
}

// managementIdentity does that for a separate management cluster.
func (l *looker) managementIdentity(ctx context.Context) (err error) {
	if l.r.Servers.Manage == l.r.Servers.Work {
		return nil
	}
	l.look.Seen.ManagementUID, err = l.sameCluster(ctx, l.r.Servers.Manage, l.run.Target.ManagementUID)
	return err
}

// sameCluster reads the identity of a cluster. An error says that it is not the one in which the run began.
func (l *looker) sameCluster(ctx context.Context, s *client.Server, began string) (uid string, err error) {
	uid, err = client.ReadShared(ctx, l.r.Shared, s.Name+" namespace "+client.IdentityNamespace, func(ctx context.Context) (string, error) {
		return s.API().Identity(ctx)
	})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("%w (apply rbac.yaml)", err)
	case err == nil && began != "" && uid != began:
		err = fmt.Errorf("the run began in the cluster whose Namespace %s has the UID %s, and the kubeconfig leads to the one with %s: point it to the former again", client.IdentityNamespace, began, uid)
	}
	return uid, err
}

func (l *looker) node(ctx context.Context) error {
	if l.run.Target.Node == "" {
		return nil // lateNode reads it, after the Machine
	}
	n, err := l.work.Node(ctx, l.run.Target.Node)
	if client.IsGone(err, l.run.Target.Node) {
		l.look.Seen.Node.Exists = remediate.No
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Node %s: %w", l.run.Target.Node, err)
	}
	l.live, l.look.FreshNode = n, view.PolicyNode(n)
	l.look.Seen.Node = client.ObservedNode(n)
	skew, _ := l.r.Servers.Work.Skew(time.Now())
	l.look.Seen.Node.Created = n.CreationTimestamp.Add(-skew)
	l.look.Seen.Node.Ready = remediate.AnswerOf(l.look.FreshNode.Ready())
	return nil
}

// lateNode reads the Node of a target that had none at the time of the decision.
// If the Machine's Node has registered since, the target must not be treated as
// one without a Node. // I4
func (l *looker) lateNode(ctx context.Context) error {
	m := l.look.FreshMachine
	switch {
	case l.run.Target.Node != "":
		return nil
	case m != nil && m.NodeName != "":
		l.run.Target.Node = m.NodeName
		return l.node(ctx)
	case l.look.Seen.Machine.Exists != remediate.CannotTell:
		l.look.Seen.Node.Exists = remediate.No
	}
	return nil
}

func (l *looker) lease(ctx context.Context) error {
	if l.run.Target.Node == "" {
		l.look.Seen.Lease.Known = true
		return nil
	}
	lease, err := l.work.Lease(ctx, nodeLeases, l.run.Target.Node)
	if client.IsGone(err, l.run.Target.Node) {
		l.look.Seen.Lease.Known = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the Lease of Node %s: %w", l.run.Target.Node, err)
	}
	l.look.Seen.Lease = remediate.Lease{Known: true, ResourceVersion: lease.ResourceVersion}
	if lease.Spec.RenewTime != nil {
		l.look.Seen.Lease.RenewTime = policy.Bounded(lease.Spec.RenewTime.Time)
	}
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		l.look.Seen.Lease.Duration = time.Duration(max(0, *seconds)) * time.Second
	}
	l.look.Lease = policy.Lease{RenewTime: l.look.Seen.Lease.RenewTime}
	return nil
}

// maxPodsLeft is how many pods a look names.
const maxPodsLeft = 3

// pods reads whether pods are still bound to the Node's name, other than
// Succeeded and Failed ones. It sets PodsGone to Yes only if there are none; if
// the list fails, PodsGone stays unknown. Mirror pods do not count: they
// represent static pods and go with the kubelet. // I7
func (l *looker) pods(ctx context.Context) error {
	if l.run.Step != remediate.PowerOn || l.run.Abandon != "" {
		return nil // only needed then
	}
	if l.run.Target.Node == "" { // no pod is bound to a Node that does not exist
		l.look.Seen.PodsGone = remediate.Yes
		return nil
	}
	bound, more, err := l.work.PodsOf(ctx, l.run.Target.Node)
	if err != nil {
		return err
	}
	l.look.Seen.PodsGone = remediate.AnswerOf(len(bound) == 0 && !more)
	for i := range min(len(bound), maxPodsLeft) {
		l.look.PodsLeft = append(l.look.PodsLeft, bound[i].Namespace+"/"+bound[i].Name)
	}
	if isReleasing(&l.run) {
		left := slices.ContainsFunc(bound, func(p corev1.Pod) bool { return client.IsReleasable(&p, l.run.Isolation) })
		l.look.Seen.PodsReleased = remediate.AnswerOf(!left && !more)
	}
	return nil
}

// restored compares the live Node with the backups. Backups that could not be
// read must not count as a run without backups. // I21
func (l *looker) restored(backups [][]byte) error {
	if backups == nil || l.live == nil {
		return nil
	}
	readBack, all, err := l.r.Restored(l.run, backups, l.live)
	if err != nil {
		return err
	}
	l.look.Seen.ReadBack, l.look.Seen.Restored = readBack, remediate.AnswerOf(all)
	return nil
}

// volumes reads whether VolumeAttachments of the Node are left, for a run that
// releases them. A right that is missing is no outage of the API, so an error only
// leaves the answer open; the release itself says what failed.
func (l *looker) volumes(ctx context.Context) error {
	if !isReleasing(&l.run) {
		return nil
	}
	if left, err := l.work.AttachmentsOf(ctx, l.run.Target.Node); err == nil {
		l.look.Seen.VolumesReleased = remediate.AnswerOf(len(left) == 0)
	}
	return nil
}

// isReleasing reports whether the run deletes the pods of its Node in this step.
func isReleasing(r *remediate.Run) bool {
	return r.Limits.ReleasePods && r.Step == remediate.PowerOn && r.Abandon == "" && r.Target.Node != ""
}

// cluster reads the Cluster of the Machine.
func (l *looker) cluster(ctx context.Context) error {
	m := l.look.FreshMachine
	if m == nil || m.Group() != client.ClusterGroup || m.ClusterName == "" {
		return nil
	}
	u, err := client.ReadCustom(ctx, l.r.Servers.ClusterResource("clusters", m.Namespace), client.ClusterGroup, m.Namespace, m.ClusterName)
	if client.IsGone(err, m.ClusterName) {
		return nil
	}
	var found policy.Cluster
	if err == nil {
		found, err = manifest.Cluster(u.Object)
	}
	if err != nil {
		return fmt.Errorf("read Cluster %s/%s: %w", m.Namespace, m.ClusterName, err)
	}
	l.look.Cluster = &found
	return nil
}

// apiState summarizes errors: a refusal by the API is different from no answer.
func apiState(errs []error) remediate.APIState {
	shut := func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
	switch {
	case len(errs) == 0:
		return remediate.APIReachable
	case slices.ContainsFunc(errs, shut):
		return remediate.APIForbidden
	}
	return remediate.APIUnreachable
}

// Pods lists the pods that are bound to a Node, as namespace/name, with an uncached read. more
// says that there are others.
func (r *Reader) Pods(ctx context.Context, node string) (names []string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	pods, more, err := r.Servers.Work.API().PodsOf(ctx, node)
	for i := range pods {
		names = append(names, pods[i].Namespace+"/"+pods[i].Name)
	}
	return names, more, err
}
