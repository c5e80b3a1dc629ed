package scene

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/fenced/fenced/test/rig"
)

// Spec describes one worker. The zero value, with a name, is a cloud instance:
// a Node and a Machine without a BMC.
type Spec struct {
	Name string
	// Protocol is the protocol of the BMC; empty means no BMC.
	Protocol Protocol
	// Metal3 configures the BMC with a BareMetalHost and its Secret instead of an
	// entry in hosts.d.
	Metal3 bool
	// Unlisted: the BMC is in no configuration of fenced.
	Unlisted bool
	// NoSecret leaves out the Secret that the BareMetalHost names.
	NoSecret bool
	// WrongPassword configures another password than the BMC has.
	WrongPassword bool
	// OtherUUID makes the BMC that of another machine than the Node's.
	OtherUUID bool
	// Serial is the serial number that a Redfish BMC reports of the host; empty means that of
	// the simulator, which identifies no machine.
	Serial string
	// At configures the address of this other worker's BMC.
	At string
	// Driver is the driver for the BMC; empty means the native one.
	Driver Driver
	// Outlets are the outlets that feed the host: its second power level.
	Outlets []Outlet
	// AlwaysOn starts the host when its mains return; otherwise it stays off.
	AlwaysOn bool
	// Pool is the label of the Machine; MetalPool if empty.
	Pool string
	// Orphan has no controller that would replace its Machine.
	Orphan bool
	// SeldomRenews is for a host that is switched off while it is healthy: its
	// kubelet renews the Lease once per hour, so that no renewal is pending on a
	// busy API server when the host reads Off.
	SeldomRenews bool
	// Role is the role of the Machine; "worker" if empty. A Node of role
	// ControlPlane also has the role label.
	Role string
	// Etcd gives a control-plane host an etcd member.
	Etcd bool
	// Stranger: no Machine names the Node.
	Stranger bool
}

func (s Spec) pool() string { return cmp.Or(s.Pool, MetalPool) }

// Worker is a simulated host with its BMC, its Node and its Machine, all of which
// have its name.
type Worker struct {
	Spec
	metal
	UUID    string // the UUID in the Node
	Kubelet *rig.Kubelet
	// Registered is the Node after its labels and taints were added.
	Registered *corev1.Node
}

// What dress adds to every Node after its registration, in addition to a cordon.
// No kubelet would restore it.
const (
	WornLabel      = "scene/rack"
	WornAnnotation = "scene/owner"
	WornTaint      = "scene/dedicated"
)

func (s *Scene) start(life context.Context, spec Spec, number int) (*Worker, error) {
	spec.Pool = spec.pool()
	w := &Worker{Spec: spec, UUID: string(uuid.NewUUID())}
	reported := w.UUID
	if spec.OtherUUID {
		reported = string(uuid.NewUUID())
	}
	if err := w.startBMC(life, spec.Protocol, reported, spec.Serial, s.opts.BMCSessions); err != nil {
		return nil, err
	}
	if err := s.wire(life, w); err != nil {
		w.stopBMC()
		return nil, err
	}
	client, err := s.Cluster.KubeletClient(spec.Name)
	if err != nil {
		w.stopBMC()
		return nil, err
	}
	labels := map[string]string{"scene/zone": "a", poolLabel: spec.Pool}
	if spec.Role == ControlPlane {
		labels["node-role.kubernetes.io/control-plane"] = ""
	}
	o := rig.KubeletOptions{
		NodeName: spec.Name, SystemUUID: w.UUID, Labels: labels, BootDelay: s.opts.BootDelay, LeaseEvery: s.opts.LeaseEvery, LeaseDuration: s.opts.LeaseDuration,
		Address: fmt.Sprintf("198.18.%d.%d", number/200, 10+number%200), // for benchmarks: never an address of this machine
		Power:   func(context.Context) (bool, error) { return true, nil },
	}
	switch {
	case s.opts.Machines == ManagedClusterAPI: // its manager annotates the Node
		o.ProviderID = rig.ProviderID(spec.Name)
	case spec.Stranger:
	case s.opts.Machines == OpenShift:
		o.Annotations = rig.NamesMachine(spec.Name)
	case s.opts.Machines == ClusterAPI:
		o.Annotations = rig.NamesCAPIMachine(spec.Name)
	}
	if w.BMC != nil {
		o.Power = w.power
	}
	if spec.SeldomRenews {
		o.RenewEvery = time.Hour
	}
	w.Kubelet = rig.NewKubelet(client, o)
	s.wg.Go(func() { _ = w.Kubelet.Run(life) }) // its only error is a missing Power
	return w, nil
}

// enrol waits for the Node, dresses it and creates its objects.
func (s *Scene) enrol(ctx context.Context, w *Worker) error {
	if _, err := s.Cluster.WaitNode(ctx, w.Name, IsReady); err != nil {
		return err
	}
	if err := s.dress(ctx, w); err != nil {
		return err
	}
	if w.Metal3 {
		if err := s.createHost(ctx, w); err != nil {
			return err
		}
	}
	if w.Stranger {
		return nil
	}
	return s.createMachine(ctx, w)
}

// told is the password in fenced's configuration.
func (w *Worker) told() string {
	if w.WrongPassword {
		return WrongPassword
	}
	return Password
}

func (s *Scene) dress(ctx context.Context, w *Worker) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"labels":      map[string]any{WornLabel: w.Name},
			"annotations": map[string]any{WornAnnotation: "team of " + w.Name},
		},
		"spec": map[string]any{
			"unschedulable": true,
			"taints":        []any{map[string]any{"key": WornTaint, "value": w.Name, "effect": "NoSchedule"}},
		},
	})
	if err != nil {
		return fmt.Errorf("dress Node %s: %w", w.Name, err)
	}
	err = rig.WhileBusy(ctx, func() error {
		w.Registered, err = s.Cluster.Client().CoreV1().Nodes().Patch(ctx, w.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("dress Node %s: %w", w.Name, err)
	}
	return nil
}

// Undressed returns what a Node lacks of what its predecessor had.
func (w *Worker) Undressed(n *corev1.Node) []string {
	var lacks []string
	if n.Labels[WornLabel] != w.Name {
		lacks = append(lacks, "label "+WornLabel)
	}
	if n.Annotations[WornAnnotation] != "team of "+w.Name {
		lacks = append(lacks, "annotation "+WornAnnotation)
	}
	if !n.Spec.Unschedulable {
		lacks = append(lacks, "the cordon")
	}
	worn := corev1.Taint{Key: WornTaint, Value: w.Name, Effect: corev1.TaintEffectNoSchedule}
	for _, t := range n.Spec.Taints {
		if t.MatchTaint(&worn) && t.Value == worn.Value {
			return lacks
		}
	}
	return append(lacks, "taint "+WornTaint)
}

// IsReady reports whether a Node exists and is Ready.
func IsReady(n *corev1.Node) bool { return rig.ReadyStatus(n) == corev1.ConditionTrue }
