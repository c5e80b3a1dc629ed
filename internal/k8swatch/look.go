package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// nodeLeases is where kubelets keep their heartbeats.
const nodeLeases = "kube-node-lease"

// podsPage is more pods than a kubelet runs.
const podsPage = 500

// Look is one uncached look at the objects of a run.
type Look struct {
	Seen         remediate.Seen // its cluster half
	FreshNode    *policy.Node   // nil when it does not exist or was not read
	FreshMachine *policy.Machine
	Err          error // everything that could not be read
}

// looker gathers the parts of one look, which are read in parallel.
type looker struct {
	api *clients
	run remediate.Run

	mu   sync.Mutex // guards errs and who contests; each other field has one writer
	errs []error
	look Look
	live *corev1.Node
	// external: the host is externally provisioned. The Machine is read at the
	// same time, so this waits here for replaceable.
	external bool
}

// Look reads Node, Lease, Machine, BareMetalHost, pods and the rival's leader
// Lease of a run, past every cache. What cannot be read stays unknown; a 404 of
// the API server is an answer. Backups that are nil could not be read.
func (c *Cluster) Look(ctx context.Context, run remediate.Run, backups [][]byte) Look {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	l := &looker{api: c.api(), run: run}
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
	for _, err := range []error{l.joined(ctx), l.restored(backups)} {
		if err != nil {
			l.errs = append(l.errs, err)
		}
	}
	l.replaceable()
	l.look.Err = errors.Join(l.errs...)
	l.look.Seen.API = apiState(l.errs)
	return l.look
}

func (l *looker) node(ctx context.Context) error {
	if l.run.Target.Node == "" {
		return nil // joined reads it, once the Machine is known
	}
	n, err := l.api.typed.CoreV1().Nodes().Get(ctx, l.run.Target.Node, metav1.GetOptions{})
	if gone(err, l.run.Target.Node) {
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

// joined reads the Node of a target that had none when the decision was made: a
// Machine whose Node has registered since must not be judged as one without. // I4
func (l *looker) joined(ctx context.Context) error {
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
	lease, err := l.api.typed.CoordinationV1().Leases(nodeLeases).Get(ctx, l.run.Target.Node, metav1.GetOptions{})
	if gone(err, l.run.Target.Node) {
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
	if gone(err, t.Machine) {
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

// pods asks whether pods that may run are still bound to the Node's name. Mirror
// pods do not count: they are the API's shadow of static pods and go with the
// kubelet. // I7
func (l *looker) pods(ctx context.Context) error {
	if l.run.Step != remediate.PowerOn || l.run.Abandon != "" || l.run.Target.Node == "" {
		return nil // nobody asks
	}
	list, err := l.api.typed.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.AndSelectors(
			fields.OneTermEqualSelector("spec.nodeName", l.run.Target.Node),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
		).String(),
		Limit: podsPage,
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

// restored compares the live Node with the backups. A store that could not be
// read must not look like a run that saved nothing. // I21
func (l *looker) restored(backups [][]byte) error {
	if backups == nil || l.live == nil {
		return nil
	}
	s, err := mergeBackups(backups)
	if err != nil {
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
	case l.external:
		s.Why = "its BareMetalHost is externally provisioned"
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
