package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fenced/fenced/test/rig"
)

const (
	poolLabel = "bench/pool"
	metalPool = "metal"
	cloudPool = "cloud"
	manyPool  = "many"
	sparePool = "spare"
	// writers is how many objects are created at once.
	writers = 16
)

// fleet is what stands in the cluster: Nodes with a Machine of the same name.
type fleet struct {
	client     kubernetes.Interface // typed, over protobuf
	metal      []*corev1.Node       // targets with a BMC
	cloud      []*corev1.Node       // targets whose Machine is to be deleted
	together   []*corev1.Node       // the same, at one moment
	spares     []string             // Machines without a Node, which the baseline deletes
	bystanders []*corev1.Node       // metal too; nothing happens to them but updates
	others     []string             // the names of the bystanders
	// UIDs by name, as created.
	nodes, machines map[string]string
	owner           metav1.OwnerReference
}

// createFleet creates Nodes, Machines, and three MachineHealthChecks: one of
// OpenShift's bare-metal strategy for all Nodes but a few, and two that delete for
// the few.
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
	return f, f.createSpares(ctx, c, o.Together)
}

// createSpares creates Machines that no check selects.
func (f *fleet) createSpares(ctx context.Context, c *rig.ControlPlane, n int) error {
	for i := range n {
		f.spares = append(f.spares, fmt.Sprintf("%s%03d", sparePrefix, i))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, name := range f.spares {
		g.Go(func() error {
			_, err := f.createMachine(ctx, c, name, sparePool)
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
	case i < len(f.cloud)+len(f.together):
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
