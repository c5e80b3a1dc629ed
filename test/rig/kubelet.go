package rig

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/fenced/fenced/test/kube"
)

// KubeletOptions describe one simulated host and the kubelet on it.
type KubeletOptions struct {
	NodeName   string
	SystemUUID string // as the host's firmware and BMC report it
	Address    string // InternalIP; 192.0.2.1 if empty
	ProviderID string
	// Annotations are what the controllers of the Machines write into a Node as soon as it registers: which
	// Machine is its.
	Annotations map[string]string
	// Labels are the --node-labels. The kubelet sets them when it creates the Node, and does not
	// change them on a Node that exists.
	Labels map[string]string
	// Power reports whether the host really has power, whatever its BMC reports. After an error
	// the host stays as it is.
	Power func(context.Context) (on bool, err error)
	// BootDelay is the time from power on to a running kubelet; 1 s if zero.
	BootDelay time.Duration
	// LeaseEvery is the time between two heartbeats; 1 s if zero.
	LeaseEvery time.Duration
	// LeaseDuration is what the Lease says of itself; 40 s, the kubelet's default, if zero.
	LeaseDuration time.Duration
	// RenewEvery is the time between two renewals of the Lease, if they are less frequent than the
	// updates of the status; LeaseEvery if zero.
	RenewEvery time.Duration
}

// Kubelet is a simulated host with its kubelet. Without power it does nothing and loses its state.
// With power it boots and behaves like a kubelet.
type Kubelet struct {
	opts   KubeletOptions
	client *kube.Client

	mu     sync.Mutex
	zombie bool
	boot   *boot // nil while there is no power
}

const powerPoll = 100 * time.Millisecond

// NewKubelet creates a host; Run starts it. The client should come from
// ControlPlane.KubeletClient.
func NewKubelet(client *kube.Client, o KubeletOptions) *Kubelet {
	o.BootDelay = cmp.Or(o.BootDelay, time.Second)
	o.LeaseEvery = cmp.Or(o.LeaseEvery, time.Second)
	o.LeaseDuration = cmp.Or(o.LeaseDuration, 40*time.Second)
	o.Address = cmp.Or(o.Address, "192.0.2.1")
	return &Kubelet{opts: o, client: client}
}

// Run follows the host's power until ctx ends, and returns when the last
// request of the kubelet has ended.
func (k *Kubelet) Run(ctx context.Context) error {
	if k.opts.Power == nil {
		return errors.New("run a simulated kubelet: no Power function")
	}
	defer k.powerOff()
	for {
		if on, err := k.opts.Power(ctx); err == nil {
			k.follow(ctx, on)
		}
		if !Sleep(ctx, powerPoll) {
			return nil
		}
	}
}

func (k *Kubelet) follow(ctx context.Context, on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch on = on || k.zombie; {
	case on && k.boot == nil:
		k.boot = startBoot(ctx, k.client, k.opts)
	case !on && k.boot != nil:
		k.boot.stop()
		k.boot = nil
	}
}

func (k *Kubelet) powerOff() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.boot != nil {
		k.boot.stop()
		k.boot = nil
	}
}

// Hang hangs the host's kernel: the power stays on, and there are no more heartbeats. Only a loss of
// power ends that, and then the next boot is healthy. A host without power cannot hang.
func (k *Kubelet) Hang() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.boot != nil {
		k.boot.stop() // k.boot stays set, so the host does not boot while the power is on
	}
}

// SetZombie makes the host ignore that its power is off, as with a BMC that
// reports a false Off, or that is another host's. Its heartbeats continue.
func (k *Kubelet) SetZombie(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.zombie = on
}

// Reinstall changes the Node name and the system UUID of the host from the next boot on. client must
// be that of a kubelet with that name.
func (k *Kubelet) Reinstall(client *kube.Client, nodeName, systemUUID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.client, k.opts.NodeName, k.opts.SystemUUID = client, nodeName, systemUUID
}

// BootID returns the ID of the present boot; empty while there is no power.
func (k *Kubelet) BootID() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.boot == nil {
		return ""
	}
	return k.boot.bootID
}

// boot is one run of a kubelet, from power on to power loss, with the state that it has in memory.
type boot struct {
	client *kube.Client
	opts   KubeletOptions
	bootID string
	lease  *coordinationv1.Lease // as last written; nil if it must be read
	cancel context.CancelFunc
	done   chan struct{}
}

func startBoot(ctx context.Context, client *kube.Client, o KubeletOptions) *boot {
	ctx, cancel := context.WithCancel(ctx)
	b := &boot{client: client, opts: o, bootID: string(uuid.NewUUID()), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.run(ctx)
	}()
	return b
}

// stop ends the kubelet at once, and cuts off a request in flight, as a power loss does.
func (b *boot) stop() {
	b.cancel()
	<-b.done
}

func (b *boot) run(ctx context.Context) {
	if !Sleep(ctx, b.opts.BootDelay) {
		return
	}
	for b.register(ctx) != nil {
		if !Sleep(ctx, 500*time.Millisecond) {
			return
		}
	}
	// From here on the kubelet never registers again, whatever happens to its Node.
	var renewed time.Time
	for {
		// After an error the next round tries again: a kubelet survives any API outage.
		if time.Since(renewed) >= b.opts.RenewEvery && b.renewLease(ctx) == nil {
			renewed = time.Now()
		}
		_ = b.reportReady(ctx)
		if !Sleep(ctx, b.opts.LeaseEvery) {
			return
		}
	}
}

// Sleep returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// machineID is stored on the host's disk, so it is the same after each boot.
func machineID(o KubeletOptions) string {
	id := [16]byte{}
	copy(id[:], o.NodeName)
	return hex.EncodeToString(id[:])
}

// register creates the Node, or takes over the Node with its name. A kubelet that finds its Node keeps
// the UID, labels, taints and cordon. As in a real cluster, the API server (admission) adds the taint
// not-ready, and the controller manager removes it.
func (b *boot) register(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        b.opts.NodeName,
		Labels:      copied(b.opts.Labels),
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
	}}
	maps.Copy(node.Annotations, b.opts.Annotations)
	maps.Copy(node.Labels, map[string]string{
		corev1.LabelHostname: b.opts.NodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
	})
	node.Spec.ProviderID = b.opts.ProviderID
	b.fillStatus(&node.Status, corev1.ConditionFalse, "container runtime network not ready")
	_, err := b.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return b.report(ctx, corev1.ConditionFalse, "container runtime network not ready")
	}
	if err != nil {
		return fmt.Errorf("register Node %s: %w", b.opts.NodeName, err)
	}
	return nil
}

// reportReady writes the periodic status. It overwrites what the controller manager wrote while
// heartbeats were missing. If the Node is gone, it does nothing.
func (b *boot) reportReady(ctx context.Context) error {
	return b.report(ctx, corev1.ConditionTrue, "kubelet is posting ready status")
}

func (b *boot) report(ctx context.Context, ready corev1.ConditionStatus, message string) error {
	nodes := b.client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, b.opts.NodeName, metav1.GetOptions{ResourceVersion: "0"}) // like a kubelet, from the API server's cache
	if err != nil {
		return fmt.Errorf("get Node %s: %w", b.opts.NodeName, err)
	}
	before := node.Status.DeepCopy()
	b.fillStatus(&node.Status, ready, message)
	if equality.Semantic.DeepEqual(before, &node.Status) {
		return nil // like a kubelet, which then posts only every 5 minutes
	}
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("report the status of Node %s: %w", b.opts.NodeName, err)
	}
	return nil
}

// fillStatus sets the fields that a kubelet knows, and leaves the others.
func (b *boot) fillStatus(s *corev1.NodeStatus, ready corev1.ConditionStatus, message string) {
	s.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	s.Allocatable = s.Capacity.DeepCopy()
	s.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: b.opts.Address}, {Type: corev1.NodeHostName, Address: b.opts.NodeName},
	}
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID: machineID(b.opts), SystemUUID: b.opts.SystemUUID, BootID: b.bootID,
		KernelVersion: "6.12.0", OSImage: "Simulated Linux", ContainerRuntimeVersion: "cri-o://1.36.0",
		KubeletVersion: kubernetesVersion, OperatingSystem: "linux", Architecture: "amd64",
	}
	setCondition(s, corev1.NodeReady, ready, "KubeletReady", message)
	for kind, reason := range map[corev1.NodeConditionType]string{
		corev1.NodeMemoryPressure: "KubeletHasSufficientMemory",
		corev1.NodeDiskPressure:   "KubeletHasNoDiskPressure",
		corev1.NodePIDPressure:    "KubeletHasSufficientPID",
	} {
		setCondition(s, kind, corev1.ConditionFalse, reason, "kubelet has enough of it")
	}
}

// setCondition changes lastTransitionTime only if the status changes: health checks count from it.
func setCondition(s *corev1.NodeStatus, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) {
	now := metav1.Now()
	if kind == corev1.NodeReady && status != corev1.ConditionTrue {
		reason = "KubeletNotReady"
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.Type != kind {
			continue
		}
		if c.Status == status {
			return
		}
		*c = corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		}
		return
	}
	s.Conditions = append(s.Conditions, corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
	})
}

// renewLease is the heartbeat. A running kubelet overwrites the Lease that it last wrote. It continues
// to do so when its Node is deleted, until the garbage collector deletes the Lease. It creates no new
// Lease without a Node.
func (b *boot) renewLease(ctx context.Context) error {
	if b.lease != nil {
		if err := b.writeLease(ctx, b.lease.DeepCopy()); err == nil {
			return nil
		}
		b.lease = nil // it changed or is gone; a kubelet reads it again after a failed write
	}
	lease, err := b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, b.opts.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return b.createLease(ctx)
	}
	if err != nil {
		return fmt.Errorf("get the Lease of Node %s: %w", b.opts.NodeName, err)
	}
	return b.writeLease(ctx, lease)
}

func (b *boot) createLease(ctx context.Context) error {
	node, err := b.client.CoreV1().Nodes().Get(ctx, b.opts.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find the owner of the Lease of Node %s: %w", b.opts.NodeName, err)
	}
	seconds, renewed := int32(b.opts.LeaseDuration/time.Second), metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	b.lease, err = b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		b.lease = nil
		return fmt.Errorf("create the Lease of Node %s: %w", b.opts.NodeName, err)
	}
	return nil
}

func (b *boot) writeLease(ctx context.Context, lease *coordinationv1.Lease) error {
	renewed := metav1.NewMicroTime(time.Now())
	lease.Spec.RenewTime = &renewed
	made, err := b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("renew the Lease of Node %s: %w", b.opts.NodeName, err)
	}
	b.lease = made
	return nil
}
