package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Where leader Leases of rival remediators live, and what they are called.
// Sources: cluster-api-provider-baremetal and machine-api-operator, the
// LeaderElectionID of their managers.
const (
	machineAPINamespace = "openshift-machine-api"
	powerCycleLeader    = "controller-leader-election-capbm"
	deletingLeader      = "cluster-api-provider-healthcheck-leader"
	nodeLeases          = "kube-node-lease"
)

// holdKey is our request that the power owner keeps the host off; it is itself
// a hard power-off.
const (
	rebootKey = "reboot.metal3.io"
	holdKey   = rebootKey + "/fenced"
	holdValue = `{"mode":"hard"}`
)

// Look is one uncached look at the objects of a run.
type Look struct {
	Seen         remediate.Seen // its cluster half
	FreshNode    *policy.Node   // nil when it does not exist or was not read
	FreshMachine *policy.Machine
	Err          error // everything that could not be read
}

// looker gathers the parts of one look, which are read in parallel.
type looker struct {
	c    *Cluster
	api  *clients
	run  remediate.Run
	live *corev1.Node

	mu   sync.Mutex
	errs []error
	look Look
}

// Look reads Node, Lease, Machine, BareMetalHost, pods and the rival's leader
// Lease of a run, past every cache. What cannot be read stays unknown; 404 is
// an answer.
func (c *Cluster) Look(ctx context.Context, run remediate.Run, backups [][]byte) Look {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	l := &looker{c: c, api: c.api(), run: run}
	var g sync.WaitGroup
	for _, read := range []func(context.Context) error{l.node, l.lease, l.machine, l.host, l.rival, l.pods} {
		g.Go(func() {
			if err := read(ctx); err != nil {
				l.mu.Lock()
				l.errs = append(l.errs, err)
				l.mu.Unlock()
			}
		})
	}
	g.Wait()
	if err := l.restored(backups); err != nil {
		l.errs = append(l.errs, err)
	}
	l.replaceable()
	l.look.Err = errors.Join(l.errs...)
	l.look.Seen.API = apiState(l.errs)
	return l.look
}

// apiState condenses what went wrong: a refusal of the API is another case
// than its silence.
func apiState(errs []error) remediate.APIState {
	switch {
	case len(errs) == 0:
		return remediate.APIReachable
	case slices.ContainsFunc(errs, func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }):
		return remediate.APIForbidden
	}
	return remediate.APIUnreachable
}

func (l *looker) node(ctx context.Context) error {
	if l.run.Target.Node == "" {
		l.look.Seen.Node.Exists = remediate.No
		return nil
	}
	n, err := l.api.typed.CoreV1().Nodes().Get(ctx, l.run.Target.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l.look.Seen.Node.Exists = remediate.No
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Node %s: %w", l.run.Target.Node, err)
	}
	l.live, l.look.FreshNode = n, policyNode(n)
	l.look.Seen.Node = remediate.Node{
		Exists: remediate.Yes, UID: string(n.UID), ResourceVersion: n.ResourceVersion,
		BootID: n.Status.NodeInfo.BootID, SystemUUID: n.Status.NodeInfo.SystemUUID,
		Deleting: n.DeletionTimestamp != nil, Ready: remediate.Ask(l.look.FreshNode.Ready()), OutOfService: hasTaint(n.Spec.Taints, outOfService),
	}
	return nil
}

func (l *looker) lease(ctx context.Context) error {
	if l.run.Target.Node == "" {
		l.look.Seen.Lease.Known = true
		return nil
	}
	lease, err := l.api.typed.CoordinationV1().Leases(nodeLeases).Get(ctx, l.run.Target.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l.look.Seen.Lease.Known = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the Lease of Node %s: %w", l.run.Target.Node, err)
	}
	l.look.Seen.Lease = remediate.Lease{Known: true, ResourceVersion: lease.ResourceVersion}
	if lease.Spec.RenewTime != nil {
		l.look.Seen.Lease.RenewTime = lease.Spec.RenewTime.Time
	}
	return nil
}

func (l *looker) machine(ctx context.Context) error {
	t := l.run.Target
	if t.Machine == "" {
		l.look.Seen.Machine.Exists = remediate.No
		return nil
	}
	u, err := l.api.dynamic.Resource(machineGVR).Namespace(t.Namespace).Get(ctx, t.Machine, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l.look.Seen.Machine.Exists = remediate.No
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Machine %s/%s: %w", t.Namespace, t.Machine, err)
	}
	m, err := manifest.Machine(u.Object)
	if err != nil {
		return fmt.Errorf("read Machine %s/%s: %w", t.Namespace, t.Machine, err)
	}
	l.look.FreshMachine = &m
	l.look.Seen.Machine = remediate.Machine{Exists: remediate.Yes, UID: m.UID, Deleting: m.Deleting, Requested: m.ExternalRemediationRequested}
	return nil
}

// host reads whether our hold stands, and what else is asked of the host.
func (l *looker) host(ctx context.Context) error {
	key := l.run.Target.BareMetalHost
	if key == "" {
		l.look.Seen.Hold = remediate.No
		return nil
	}
	h, err := l.api.bareMetalHost(ctx, key)
	if apierrors.IsNotFound(err) {
		l.look.Seen.Hold, l.look.Seen.PowerForbidden = remediate.No, "BareMetalHost "+key+" does not exist any more"
		return nil
	}
	if err != nil {
		return fmt.Errorf("read BareMetalHost %s: %w", key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, held := h.Annotations[holdKey]
	l.look.Seen.Hold = remediate.Ask(held)
	switch {
	case h.DisablePowerOff:
		l.look.Seen.PowerForbidden = "BareMetalHost " + key + " has disablePowerOff: true"
	case !h.Online:
		l.look.Seen.PowerForbidden = "BareMetalHost " + key + " has online: false; its owner wants it off"
	}
	for k := range h.Annotations {
		if k != holdKey && strings.HasPrefix(k, rebootKey) {
			l.contest("BareMetalHost " + key + " carries the power request " + k)
		}
	}
	if h.ExternallyProvisioned {
		l.look.Seen.Machine.Why = "its BareMetalHost is externally provisioned"
	}
	return nil
}

func (cl *clients) bareMetalHost(ctx context.Context, key string) (policy.Host, error) {
	ns, name, _ := strings.Cut(key, "/")
	u, err := cl.dynamic.Resource(hostGVR).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return policy.Host{}, err
	}
	return manifest.BareMetalHost(u.Object)
}

// rival reads whether the controller that would do the same is alive: its
// leader Lease is unexpired. Without a Machine there is none. // I22
func (l *looker) rival(ctx context.Context) error {
	name := powerCycleLeader
	switch {
	case l.run.Target.Machine == "":
		l.answer(remediate.No)
		return nil
	case l.run.Strategy == remediate.DeleteMachine:
		name = deletingLeader
	}
	lease, err := l.api.typed.CoordinationV1().Leases(machineAPINamespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l.answer(remediate.No)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Lease %s/%s: %w", machineAPINamespace, name, err)
	}
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		l.answer(remediate.No)
		return nil
	}
	l.answer(remediate.No)
	if time.Now().Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)) {
		l.mu.Lock()
		l.contest(*s.HolderIdentity + " holds the leader Lease " + name)
		l.mu.Unlock()
	}
	return nil
}

// answer notes that rivals could be read; one found elsewhere stands.
func (l *looker) answer(a remediate.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look.Seen.Contested == remediate.CannotTell {
		l.look.Seen.Contested = a
	}
}

// contest notes a rival; l.mu is held.
func (l *looker) contest(who string) {
	l.look.Seen.Contested, l.look.Seen.Contender = remediate.Yes, who
}

// pods asks whether pods are still bound to the Node's name. Mirror pods do not
// count: they are the API's shadow of static pods and go with the kubelet. // I7
func (l *looker) pods(ctx context.Context) error {
	if l.run.Step != remediate.PowerOn || l.run.Abandon != "" || l.run.Target.Node == "" {
		return nil // nobody asks
	}
	list, err := l.api.typed.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", l.run.Target.Node).String(), Limit: 500,
	})
	if err != nil {
		return fmt.Errorf("list the pods of Node %s: %w", l.run.Target.Node, err)
	}
	bound := list.Continue != "" || slices.ContainsFunc(list.Items, func(p corev1.Pod) bool {
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		return !mirror
	})
	l.look.Seen.PodsGone = remediate.Ask(!bound)
	return nil
}

// restored compares the live Node with the backups.
func (l *looker) restored(backups [][]byte) error {
	s, err := mergeBackups(backups)
	if err != nil || l.live == nil {
		return err
	}
	l.look.Seen.Restored = remediate.Ask(missing(s, l.live, l.run.Isolation).empty())
	return nil
}

// replaceable says whether deleting the Machine makes a controller replace it. // I14
func (l *looker) replaceable() {
	m, s := l.look.FreshMachine, &l.look.Seen.Machine
	switch {
	case m == nil:
		return
	case s.Why != "": // the host's
	case m.ControlPlane || l.look.FreshNode != nil && l.look.FreshNode.ControlPlane:
		s.Why = "it is a control-plane Machine"
	case m.ControllerOwner == policy.Owner{}:
		s.Why = "no controller owns it, so nothing would replace it"
	}
	s.Replaceable = remediate.Ask(s.Why == "")
	if l.run.Target.BareMetalHost != "" && l.look.Seen.Hold == remediate.CannotTell {
		s.Replaceable = remediate.CannotTell
	}
}
