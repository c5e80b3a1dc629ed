package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/rig"
)

const (
	poolLabel = "bench/pool"
	metalPool = "metal"
	cloudPool = "cloud"
	manyPool  = "many"
	// writers is how many objects are created at once.
	writers = 16
)

// fleet is what stands in the cluster: Nodes with a Machine of the same name.
type fleet struct {
	client     kubernetes.Interface // typed, over protobuf
	metal      []*corev1.Node       // targets with a BMC
	cloud      []*corev1.Node       // targets whose Machine is to be deleted
	together   []*corev1.Node       // the same, at one moment
	bystanders []*corev1.Node       // with a BMC, too; nothing happens to them but updates
	others     []string             // the names of the bystanders
	// UIDs by name, as created.
	nodes, machines map[string]string
	owner           metav1.OwnerReference
}

// createFleet creates Nodes, Machines, and three MachineHealthChecks: one of
// OpenShift's bare-metal strategy for a quarter of them, one that deletes for the others, and one that deletes
// for the few that fail one after another.
func createFleet(ctx context.Context, c *rig.ControlPlane, o Options, m *metal) (*fleet, error) {
	client, err := protobufClient(c)
	if err != nil {
		return nil, err
	}
	f := &fleet{client: client, nodes: map[string]string{}, machines: map[string]string{}}
	set, err := c.CreateMachineSet(ctx, "workers")
	if err != nil {
		return nil, err
	}
	f.owner = *metav1.NewControllerRef(set, set.GroupVersionKind())
	nodes := make([]*corev1.Node, o.Nodes)
	for i := range nodes {
		uuid := newUUID()
		if i < o.Samples {
			uuid = m.targets[i].uuid
		}
		nodes[i] = newNode(fmt.Sprintf("node-%05d", i), uuid, i)
	}
	alone := 2 * o.Samples
	f.metal, f.cloud, f.together, f.bystanders = nodes[:o.Samples], nodes[o.Samples:alone], nodes[alone:alone+o.Together], nodes[alone+o.Together:]
	if err := f.create(ctx, c, nodes); err != nil {
		return nil, err
	}
	for _, k := range []rig.Check{
		{Name: metalPool, Match: pool(metalPool), Conditions: rig.NotReadyFor(metalTimeout.String()), MaxUnhealthy: "40%",
			Strategy: rig.BareMetalStrategy},
		{Name: cloudPool, Match: pool(cloudPool), Conditions: rig.NotReadyFor(cloudTimeout.String())},
		{Name: manyPool, Match: pool(manyPool), Conditions: rig.NotReadyFor(manyTimeout.String())},
	} {
		if _, err := c.CreateCheck(ctx, k); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// renew makes the Nodes that failed together Ready, and gives each a new Machine, as if the old ones had been replaced.
func (f *fleet) renew(ctx context.Context, c *rig.ControlPlane) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range f.together {
		g.Go(func() error {
			n, err := f.client.CoreV1().Nodes().Get(ctx, f.together[i].Name, metav1.GetOptions{})
			if err == nil {
				ready(n, time.Now().Truncate(time.Second))
				n, err = f.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
			}
			if err != nil {
				return fmt.Errorf("make Node %s Ready again: %w", f.together[i].Name, err)
			}
			f.together[i] = n
			_, err = f.createMachine(ctx, c, n.Name, manyPool)
			return err
		})
	}
	return g.Wait()
}

// protobufClient is the administrator's, as kubelets and controllers speak.
func protobufClient(c *rig.ControlPlane) (kubernetes.Interface, error) {
	cfg, err := c.RESTConfig("bench", rig.AdminGroup)
	if err != nil {
		return nil, err
	}
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}

// create creates every Node and its Machine; nodes hold then what the API
// server made of them.
func (f *fleet) create(ctx context.Context, c *rig.ControlPlane, nodes []*corev1.Node) error {
	uids := make([]string, len(nodes))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range nodes {
		g.Go(func() (err error) {
			if nodes[i], err = f.client.CoreV1().Nodes().Create(ctx, nodes[i], metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create a Node: %w", err)
			}
			uids[i], err = f.createMachine(ctx, c, nodes[i].Name, f.poolOf(i))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, n := range nodes {
		f.nodes[n.Name], f.machines[n.Name] = string(n.UID), uids[i]
	}
	for _, n := range f.bystanders {
		f.others = append(f.others, n.Name)
	}
	return nil
}

// poolOf is the pool of the Node with a number.
func (f *fleet) poolOf(i int) string {
	switch i -= len(f.metal); {
	case i < 0:
		return metalPool
	case i < len(f.cloud):
		return cloudPool
	case i < len(f.cloud)+len(f.together), i%4 > 0: // the updates of most Nodes are for the check of those that fail together, as in a cluster
		return manyPool
	}
	return metalPool
}

// createMachine writes what the machine controller would have left.
func (f *fleet) createMachine(ctx context.Context, c *rig.ControlPlane, name, poolName string) (uid string, err error) {
	client := c.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace)
	obj, err := client.Create(ctx, newMachine(name, poolName, f.owner), metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create Machine %s: %w", name, err)
	}
	obj.Object["status"] = machineStatus(name)
	if obj, err = client.UpdateStatus(ctx, obj, metav1.UpdateOptions{}); err != nil {
		return "", fmt.Errorf("write the status of Machine %s: %w", name, err)
	}
	return string(obj.GetUID()), nil
}

func pool(name string) map[string]string { return map[string]string{poolLabel: name} }

// newMachine is a worker's Machine that a MachineSet would replace, with a
// providerSpec of the usual size.
func newMachine(name, poolName string, owner metav1.OwnerReference) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
		"spec": map[string]any{
			"metadata":     map[string]any{"labels": map[string]any{"node-role.kubernetes.io/worker": ""}},
			"providerSpec": map[string]any{"value": providerSpec()},
		},
	}}
	m.SetName(name)
	m.SetNamespace(rig.Namespace)
	m.SetOwnerReferences([]metav1.OwnerReference{owner})
	m.SetLabels(map[string]string{
		poolLabel: poolName,
		"machine.openshift.io/cluster-api-machine-role": "worker",
		"machine.openshift.io/cluster-api-machine-type": "worker",
		"machine.openshift.io/cluster-api-machineset":   owner.Name,
	})
	return m
}

func providerSpec() map[string]any {
	var disks []any
	for i := range 8 {
		disks = append(disks, map[string]any{
			"deviceName": fmt.Sprintf("/dev/disk/by-path/pci-0000:00:1f.2-ata-%d", i), "sizeGigabytes": int64(960), "wwn": fmt.Sprintf("0x%016x", i),
		})
	}
	return map[string]any{
		"apiVersion": "baremetal.cluster.k8s.io/v1alpha1", "kind": "BareMetalMachineProviderSpec", "disks": disks,
		"image":    map[string]any{"url": "http://images.example.com/rhcos.qcow2", "checksum": "http://images.example.com/rhcos.qcow2.md5sum"},
		"userData": map[string]any{"name": "worker-user-data-managed", "namespace": rig.Namespace},
	}
}

func machineStatus(node string) map[string]any {
	now := time.Now().UTC().Format(time.RFC3339)
	return map[string]any{
		"phase": "Running", "lastUpdated": now,
		"nodeRef":   map[string]any{"kind": "Node", "name": node},
		"addresses": []any{map[string]any{"type": "Hostname", "address": node}},
		"conditions": []any{map[string]any{
			"type": "InstanceExists", "status": "True", "lastTransitionTime": now,
		}},
	}
}

// target is a host behind a BMC that notes when it is first asked something.
type target struct {
	uuid  string
	bmc   *ipmisim.GoBMC
	relay *ipmisim.Relay
	once  sync.Once
	asked chan time.Time // the arrival of the first datagram
}

// metal is every BMC: those of the targets, and one address each for all other
// hosts, behind which a decoy counts what should never come.
type metal struct {
	targets []*target
	decoy   *decoy
}

func startMetal(ctx context.Context, targets int) (_ *metal, err error) {
	m := &metal{}
	if m.decoy, err = startDecoy(ctx); err != nil {
		return nil, err
	}
	for range targets {
		t := &target{uuid: newUUID(), asked: make(chan time.Time, 1)}
		if err := t.start(ctx); err != nil {
			m.stop()
			return nil, err
		}
		m.targets = append(m.targets, t)
	}
	return m, nil
}

func (m *metal) stop() {
	m.decoy.stop()
	for _, t := range m.targets {
		t.relay.Stop()
		t.bmc.Stop()
	}
}

func (t *target) start(ctx context.Context) (err error) {
	if t.bmc, err = ipmisim.StartGo(ctx, ipmisim.Options{User: user, Password: password, UUID: t.uuid}); err != nil {
		return err
	}
	if t.relay, err = ipmisim.StartRelay(t.bmc.Addr()); err != nil {
		t.bmc.Stop()
		return err
	}
	t.relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if !d.FromBMC {
			t.once.Do(func() { t.asked <- time.Now() })
		}
		return []ipmisim.Datagram{d}
	})
	return nil
}

// decoy listens on every loopback address, 127.0.0.0/8, at one port.
type decoy struct {
	conn  net.PacketConn
	port  int
	asked atomic.Int64
	done  chan struct{}
}

func startDecoy(ctx context.Context) (*decoy, error) {
	conn, port, err := ipmisim.ListenLoopback(ctx)
	if err != nil {
		return nil, fmt.Errorf("listen for whoever asks a healthy host: %w", err)
	}
	d := &decoy{conn: conn, port: port, done: make(chan struct{})}
	go d.count()
	return d, nil
}

func (d *decoy) count() {
	defer close(d.done)
	var buf [2048]byte
	for {
		if _, _, err := d.conn.ReadFrom(buf[:]); err != nil {
			return // closed
		}
		d.asked.Add(1)
	}
}

// address is that of one host; every number has its own.
func (d *decoy) address(number int) string {
	return fmt.Sprintf("ipmi://127.%d.%d.%d:%d", 1+number>>16&0x7f, number>>8&0xff, number&0xff, d.port)
}

func (d *decoy) stop() {
	_ = d.conn.Close() // nothing is lost with it
	<-d.done
}

// images is what makes up most of a Node: a kubelet reports 50.
const images = 50

// newNode is a Node as large as a real one, about 12 KB as JSON before the API
// server adds its own. Its addresses are from the range for benchmarks: never
// those of this machine, which fenced would refuse to fence.
func newNode(name, uuid string, number int) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: nodeLabels(name), Annotations: map[string]string{
			"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			"machine.openshift.io/machine":                           "openshift-machine-api/" + name,
			"machineconfiguration.openshift.io/currentConfig":        "rendered-worker-0123456789abcdef0123456789abcdef",
			"machineconfiguration.openshift.io/desiredConfig":        "rendered-worker-0123456789abcdef0123456789abcdef",
			"machineconfiguration.openshift.io/state":                "Done",
		}},
		Status: corev1.NodeStatus{
			Capacity: capacity(), Allocatable: capacity(),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("198.18.%d.%d", number/250, 1+number%250)},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: uuid, SystemUUID: uuid, BootID: newUUID(),
				KernelVersion: "6.12.0", OSImage: "Simulated Linux", ContainerRuntimeVersion: "cri-o://1.36.0",
				KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse,
			Reason: "KubeletHasSufficient", Message: "kubelet has enough of it", LastHeartbeatTime: since, LastTransitionTime: since})
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady", Message: "kubelet is posting ready status", LastHeartbeatTime: since, LastTransitionTime: since})
	for i := range images {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: int64(i+1) << 20, Names: []string{
			fmt.Sprintf("registry.example.com/platform/component-%02d@sha256:%064x", i, i),
			fmt.Sprintf("registry.example.com/platform/component-%02d:v4.20.%d", i, i),
		}})
	}
	return n
}

func nodeLabels(name string) map[string]string {
	return map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
		"node-role.kubernetes.io/worker": "", "node.openshift.io/os_id": "rhel",
	}
}

func capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"),
		corev1.ResourcePods: resource.MustParse("250"), corev1.ResourceEphemeralStorage: resource.MustParse("900Gi"),
	}
}

// heartbeat is the update that says nothing but that the kubelet lives.
func heartbeat(n *corev1.Node, now time.Time) {
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(now)
	}
}

// turn changes a condition that no check lists: its status, its clock and its
// message. It reaches whoever judges and changes no verdict.
func turn(n *corev1.Node, now time.Time) {
	heartbeat(n, now)
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type != corev1.NodeMemoryPressure {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has enough memory"
		} else {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, "KubeletHasInsufficientMemory", "kubelet has little memory left"
		}
		c.LastTransitionTime = metav1.NewTime(now)
	}
}

// fail makes a Node's Ready Unknown since a whole second, as the controller
// manager does when heartbeats stop.
func fail(n *corev1.Node, since time.Time) {
	setReady(n, since, corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
}

// ready is the end of that.
func ready(n *corev1.Node, since time.Time) {
	setReady(n, since, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
}

func setReady(n *corev1.Node, since time.Time, status corev1.ConditionStatus, reason, message string) {
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type == corev1.NodeReady {
			c.Status, c.Reason, c.Message, c.LastTransitionTime = status, reason, message, metav1.NewTime(since)
		}
	}
}

func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, by its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// untouched is an error when fenced acted on anything but the targets: a fast
// answer to the wrong question is worth nothing.
func (b *bench) untouched(ctx context.Context) error {
	nodes, err := b.uids(ctx, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "")
	if err != nil {
		return err
	}
	machines, err := b.uids(ctx, rig.MachineResource, rig.Namespace)
	if err != nil {
		return err
	}
	kept := maps.Clone(b.fleet.machines)
	for _, n := range slices.Concat(b.fleet.cloud, b.fleet.together) {
		delete(kept, n.Name)
	}
	errs := []error{replaced("Node", b.fleet.others, b.fleet.nodes, nodes), replaced("Machine", slices.Sorted(maps.Keys(kept)), kept, machines)}
	if asked := b.metal.decoy.asked.Load(); asked > 0 {
		errs = append(errs, fmt.Errorf("BMCs of healthy hosts were sent %d datagrams", asked))
	}
	return errors.Join(errs...)
}

// replaced names the objects that are not any more what they were.
func replaced(kind string, names []string, before, now map[string]string) error {
	var gone []string
	for _, name := range names {
		if now[name] != before[name] {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return fmt.Errorf("%d objects of kind %s that nothing was wrong with are gone, %s first", len(gone), kind, gone[0])
}

// uids lists a resource.
func (b *bench) uids(ctx context.Context, r schema.GroupVersionResource, namespace string) (map[string]string, error) {
	cfg, err := b.cluster.RESTConfig("bench", rig.AdminGroup)
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	list, err := client.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the %s: %w", r.Resource, err)
	}
	all := make(map[string]string, len(list.Items))
	for _, o := range list.Items {
		all[o.Name] = string(o.UID)
	}
	return all, nil
}
