package scene

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/test/rig"
)

// Machines is the kind of the Machines of a scene's workers.
type Machines string

// The kinds of Machines. Those of the Cluster API, and the BareMetalHosts, are
// on the management API.
const (
	OpenShift  Machines = ""
	ClusterAPI Machines = "ClusterAPI"
	NoMachines Machines = "None"
	// ManagedClusterAPI: the Cluster API's real manager makes the Machines, and gives them names, from a
	// MachineSet for each pool. A worker that is a Stranger is a spare host of its pool.
	ManagedClusterAPI Machines = "ManagedClusterAPI"
)

// ControlPlane is the role of a control-plane host.
const ControlPlane = "master"

// The owners of the Machines, which would replace them.
const (
	machineSet   = "workers"
	controlPlane = "control-plane"
)

func (s *Scene) createOwners(ctx context.Context) error {
	switch s.opts.Machines {
	case OpenShift:
		_, err := s.Management.CreateMachineSet(ctx, machineSet)
		return err
	case ClusterAPI:
		if _, err := s.Management.CreateCAPICluster(ctx, ClusterName); err != nil {
			return err
		}
		if _, err := s.Management.CreateCAPIMachineSet(ctx, ClusterName, machineSet); err != nil {
			return err
		}
		_, err := s.Management.CreateCAPIControlPlane(ctx, ClusterName, controlPlane)
		return err
	case ManagedClusterAPI:
		return s.startClusterAPI(ctx)
	}
	return nil
}

func (s *Scene) createMachine(ctx context.Context, w *Worker) error {
	host := ""
	if w.Metal3 {
		host = w.Name
	}
	switch s.opts.Machines {
	case OpenShift:
		m := rig.Machine{Name: w.Name, Role: w.Role, NodeName: w.Name, Labels: Pool(w.Pool), Host: host}
		if !w.Orphan {
			m.MachineSet = machineSet
		}
		_, err := s.Management.CreateMachine(ctx, m)
		return err
	case ClusterAPI:
		m := rig.CAPIMachine{Name: w.Name, Cluster: ClusterName, NodeName: w.Name, Labels: Pool(w.Pool), Host: host}
		switch {
		case w.Orphan:
		case w.Role == ControlPlane:
			m.ControlPlane = controlPlane
		default:
			m.MachineSet = machineSet
		}
		_, err := s.Management.CreateCAPIMachine(ctx, m)
		return err
	}
	return nil
}

// createHost creates a worker's BareMetalHost with its Secret.
func (s *Scene) createHost(ctx context.Context, w *Worker) error {
	h := rig.Host{Name: w.Name, Address: s.named(w).Address(), SkipVerify: true}
	if s.opts.Machines == OpenShift {
		h.Machine = w.Name
	}
	if !w.NoSecret {
		h.User, h.Password = User, w.told()
	}
	if _, err := s.Management.CreateHost(ctx, h); err != nil || s.opts.Machines != ClusterAPI {
		return err
	}
	// The Cluster API's provider has an object of its own between Machine and host.
	patch := fmt.Appendf(nil, `{"spec":{"consumerRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1",`+
		`"kind":"Metal3Machine","namespace":%q,"name":%q}}}`, rig.Namespace, w.Name)
	hosts := s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace)
	if err := rig.WhileBusy(ctx, func() error {
		_, err := hosts.Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("say who uses BareMetalHost %s: %w", w.Name, err)
	}
	return nil
}

func (s *Scene) createChecks(ctx context.Context) error {
	for _, k := range s.opts.Checks {
		if _, err := s.Management.CreateCheck(ctx, k); err != nil {
			return err
		}
	}
	for _, k := range s.opts.ClusterChecks {
		k.Cluster = ClusterName
		if _, err := s.Management.CreateCAPICheck(ctx, k); err != nil {
			return err
		}
	}
	for _, k := range s.opts.NodeChecks {
		if _, err := s.Cluster.CreateNodeCheck(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// ofClusterAPI reports whether the Machines are the Cluster API's, whoever makes them.
func (m Machines) ofClusterAPI() bool { return m == ClusterAPI || m == ManagedClusterAPI }

// startClusterAPI starts the real manager of the Cluster API, with a Cluster and a provider that has
// all workers as hosts.
func (s *Scene) startClusterAPI(ctx context.Context) (err error) {
	if s.clusterAPI, err = s.Management.StartClusterAPI(ctx); err != nil {
		return err
	}
	hosts, spare, replicas := map[string][]string{}, map[string][]string{}, map[string]int{}
	for _, spec := range s.opts.Workers {
		if spec.Stranger {
			spare[spec.pool()] = append(spare[spec.pool()], spec.Name)
			continue
		}
		hosts[spec.pool()] = append(hosts[spec.pool()], spec.Name)
		replicas[spec.pool()]++
	}
	for pool, names := range spare {
		hosts[pool] = append(hosts[pool], names...)
	}
	provider, err := s.clusterAPI.NewProvider(ctx, hosts)
	if err != nil {
		return err
	}
	if err := s.clusterAPI.ConnectCluster(ctx, ClusterName, s.Cluster); err != nil {
		return err
	}
	s.wg.Go(func() { provider.Run(s.life) })
	if err := provider.CreateCluster(ctx, ClusterName, s.Cluster); err != nil {
		return err
	}
	for pool, n := range replicas {
		if err := provider.CreateMachineSet(ctx, ClusterName, pool, n, Pool(pool)); err != nil {
			return err
		}
	}
	return nil
}

// awaitMachines waits until the manager has linked a Machine with the Node of each worker.
func (s *Scene) awaitMachines(ctx context.Context) error {
	for _, w := range s.Workers {
		for !w.Stranger {
			m, err := s.MachineOf(ctx, w.Name)
			if err != nil {
				return err
			}
			if phase, _, _ := unstructured.NestedString(m.Object, "status", "phase"); phase == "Running" {
				break
			}
			if !rig.Sleep(ctx, 200*time.Millisecond) {
				return fmt.Errorf("wait for the Machine of %s, last seen: %v: %w", w.Name, m.Object, ctx.Err())
			}
		}
	}
	return nil
}

// MachineOf is the Machine that the manager of the Cluster API has linked with a Node; an empty object if
// there is none.
func (s *Scene) MachineOf(ctx context.Context, node string) (*unstructured.Unstructured, error) {
	var machines *unstructured.UnstructuredList
	err := rig.WhileBusy(ctx, func() (err error) {
		machines, err = s.Management.Dynamic().Resource(rig.CAPIResource("v1beta2", "machines")).Namespace(rig.Namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the Machine of Node %s: %w", node, err)
	}
	for i := range machines.Items {
		if name, _, _ := unstructured.NestedString(machines.Items[i].Object, "status", "nodeRef", "name"); name == node {
			return &machines.Items[i], nil
		}
	}
	return &unstructured.Unstructured{}, nil
}

// etcdEvery is the time between two looks at an etcd Pod.
const etcdEvery = 300 * time.Millisecond

// runEtcd keeps an etcd member on a worker until the scene ends, and returns
// when it is Ready. To the API it is what kubeadm has: the mirror of a static
// Pod, which the kubelet makes and calls Ready as long as it lives itself. That
// it lives no more is written by the controller manager.
func (s *Scene) runEtcd(ctx, life context.Context, w *Worker) error {
	if err := rig.WhileBusy(ctx, func() error { return s.keepEtcd(ctx, w) }); err != nil {
		return err
	}
	s.wg.Go(func() {
		for life.Err() == nil {
			_ = s.keepEtcd(life, w) // errors are for the next round, as with a kubelet
			rig.Sleep(life, etcdEvery)
		}
	})
	return nil
}

// keepEtcd does what the kubelet does for its static Pod. One that does not
// heartbeat does nothing.
func (s *Scene) keepEtcd(ctx context.Context, w *Worker) error {
	node, err := s.Cluster.Client().CoreV1().Nodes().Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get Node %s: %w", w.Name, err)
	}
	if !IsReady(node) || node.Status.NodeInfo.BootID != w.Kubelet.BootID() {
		return nil
	}
	pods := s.Cluster.Client().CoreV1().Pods(metav1.NamespaceSystem)
	pod, err := pods.Get(ctx, "etcd-"+w.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		pod, err = pods.Create(ctx, etcdPod(w.Name), metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make the etcd Pod of %s: %w", w.Name, err)
	}
	if podReady(pod) {
		return nil
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say that the etcd Pod of %s is Ready: %w", w.Name, err)
	}
	return nil
}

func etcdPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "etcd-" + node, Labels: map[string]string{"component": "etcd", "tier": "control-plane"},
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: node},
		},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true,
			Containers:                   []corev1.Container{{Name: "etcd", Image: "example.com/etcd"}},
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			AutomountServiceAccountToken: new(bool),
		},
	}
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
