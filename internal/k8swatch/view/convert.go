package view

import (
	"fmt"
	"hash/maphash"
	"maps"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/request"
)

// convertNode extracts what policy and the guards need of a Node. Nodes are
// decoded from protobuf, which is eight times cheaper than the decoder of
// manifests.
func convertNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("a %T came from the watch on Nodes", obj)
	}
	if size := sizeOf(n); size > maxNode {
		return nil, fmt.Errorf("its labels, annotations, conditions, addresses and IDs have %d bytes, more than %d", size, maxNode)
	}
	return PolicyNode(n), nil
}

// maxNode bounds what is kept of a Node, in bytes. Its kubelet may write any length.
const maxNode = 1 << 17

// sizeOf is the length of what is kept of a Node.
func sizeOf(n *corev1.Node) int {
	info := &n.Status.NodeInfo
	openShift, clusterAPI := policy.NamedMachines(n.Annotations)
	size := len(openShift) + len(clusterAPI) + len(n.Spec.ProviderID) + len(info.SystemUUID) + len(info.BootID) + len(info.MachineID)
	for _, m := range []map[string]string{n.Labels, ruleAnnotations(n.Annotations)} {
		for key, value := range m {
			size += len(key) + len(value)
		}
	}
	const each = 64 // the value of a condition or an address
	for _, c := range n.Status.Conditions {
		size += len(c.Type) + len(c.Status) + each
	}
	for _, a := range n.Status.Addresses {
		size += len(a.Address) + each
	}
	return size
}

// PolicyNode is what is kept of a Node.
func PolicyNode(n *corev1.Node) *policy.Node {
	out := &policy.Node{
		Name: n.Name, UID: string(n.UID), Labels: nodeLabels(n), Annotations: sharedMap(ruleAnnotations(n.Annotations)),
		Created: policy.Bounded(n.CreationTimestamp.Time), Deleting: n.DeletionTimestamp != nil, ProviderID: n.Spec.ProviderID,
		SystemUUID: n.Status.NodeInfo.SystemUUID, BootID: n.Status.NodeInfo.BootID, MachineID: n.Status.NodeInfo.MachineID,
		ControlPlane: policy.ControlPlaneNode(labels.Set(n.Labels)),
	}
	out.OpenShiftMachine, out.ClusterMachine = policy.NamedMachines(n.Annotations)
	conditions := make([]policy.Condition, 0, len(n.Status.Conditions))
	for _, c := range n.Status.Conditions {
		conditions = append(conditions, policy.Condition{Type: string(c.Type), Status: string(c.Status), LastTransition: policy.Bounded(c.LastTransitionTime.Time)})
	}
	out.Conditions = policy.ConditionsOf(conditions)
	out.Addresses = make([]string, 0, len(n.Status.Addresses))
	for _, a := range n.Status.Addresses {
		out.Addresses = append(out.Addresses, a.Address)
	}
	texts := []*string{&out.ProviderID, &out.OpenShiftMachine, &out.ClusterMachine, &out.UID, &out.SystemUUID, &out.BootID, &out.MachineID}
	for i := range out.Addresses {
		texts = append(texts, &out.Addresses[i])
	}
	oneText(texts...)
	return out
}

// convertPod extracts where a Pod of the control plane runs and whether it is ready.
func convertPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("a %T came from the watch on Pods", obj)
	}
	return PolicyPod(p), nil
}

// PolicyPod is what is kept of a Pod of the control plane.
func PolicyPod(p *corev1.Pod) *policy.Pod {
	out := &policy.Pod{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName}
	_, out.Member = policy.ControlPlanePod(p.Namespace, p.Labels)
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

// convertMachine makes the converter of Machines from one of manifest's decoders.
func convertMachine(decode func(map[string]any) (policy.Machine, error)) func(any) (any, error) {
	return converter(func(fields map[string]any) (policy.Machine, error) {
		m, err := decode(fields)
		m.APIVersion, m.Phase, m.Namespace = intern(m.APIVersion), intern(m.Phase), intern(m.Namespace)
		m.Infrastructure.Kind = intern(m.Infrastructure.Kind)
		for _, shared := range []*string{&m.ControllerOwner.Kind, &m.ControllerOwner.Name, &m.ControllerOwner.UID} {
			*shared = intern(*shared)
		}
		oneText(&m.ProviderID, &m.NodeName, &m.UID, &m.NodeUID, &m.Infrastructure.Name)
		m.Labels, m.Annotations = sharedMap(internMap(m.Labels)), sharedMap(withoutMarks(internMap(m.Annotations)))
		for i := range m.Conditions {
			m.Conditions[i].Type, m.Conditions[i].Status = intern(m.Conditions[i].Type), intern(m.Conditions[i].Status)
		}
		return m, err
	})
}

// withoutMarks removes fenced's own marks from interned annotations: no rule reads them, and
// they must cause no evaluation.
func withoutMarks(annotations map[string]string) map[string]string {
	for _, key := range client.MarkKeys {
		delete(annotations, key)
	}
	if len(annotations) == 0 {
		return nil
	}
	return annotations
}

// convertHost makes the converter of BareMetalHosts. apart: they are on a
// separate management API.
func convertHost(apart bool) func(any) (any, error) {
	return converter(func(fields map[string]any) (policy.Host, error) {
		h, err := manifest.BareMetalHost(fields)
		h.OnManagementAPI = apart
		return h, err
	})
}

// convertRequest makes the converter of remediation requests. apart: they are on a
// separate management API. Whether a Node that is Ready may be power-cycled is up to the
// administrator: whoever may create a request could ask for it.
func (c Config) convertRequest(apart bool) func(any) (any, error) {
	return converter(func(fields map[string]any) (policy.Request, error) {
		decode := manifest.Request
		if c.Metal3Remediations {
			decode = manifest.OwnRequest
		}
		q, err := decode(fields)
		q.OnManagementAPI = apart
		if p := q.Power; p != nil {
			p.ReadyNodes = p.ReadyNodes && c.RemediateReadyNodes
			by, ours := strings.CutPrefix(p.HeldBy, c.RequestHolder())
			if run, named := strings.CutPrefix(by, client.HeldFor); ours && named {
				p.HeldFor, p.HeldMachine = request.ParseHolder(run)
			}
			p.HasFinalizer, p.FinalizerElsewhere = p.HasFinalizer && ours, p.HasFinalizer && !ours
		}
		return q, err
	})
}

// DecodeRequest decodes a request as the view does.
func (c Config) DecodeRequest(u *unstructured.Unstructured, onManagementAPI bool) (*policy.Request, error) {
	found, err := c.convertRequest(onManagementAPI)(u)
	if err != nil {
		return nil, err
	}
	return found.(*policy.Request), nil
}

// ruleAnnotations returns the few annotations of a Node that a rule reads: those
// of medik8s, and those in which OpenShift records the current and the desired
// configuration.
func ruleAnnotations(annotations map[string]string) map[string]string {
	var kept map[string]string
	for k, v := range annotations {
		if strings.HasPrefix(k, client.Medik8sGroup+"/") || strings.HasPrefix(k, "machineconfiguration.openshift.io/") {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[intern(k)] = intern(v)
		}
	}
	return kept
}

// converter makes a store's converter from one of manifest's decoders, the same
// that read files.
func converter[T any](decode func(map[string]any) (T, error)) func(any) (any, error) {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("a %T came from a dynamic watch", obj)
		}
		v, err := decode(u.Object)
		if err != nil {
			return nil, err
		}
		return &v, nil
	}
}

// convertUpgrade decodes a ClusterVersion. One that cannot be decoded counts as
// an upgrade, with the error as the reason.
func convertUpgrade(obj any) (any, error) {
	return converter(func(fields map[string]any) (policy.Upgrade, error) {
		u, _ := manifest.ClusterVersion(fields)
		return u, nil
	})(obj)
}

// checkConverter is converter for checks. A check that cannot be decoded is
// Invalid.
func checkConverter(decode func(map[string]any) policy.Check) func(any) (any, error) {
	return converter(func(fields map[string]any) (policy.Check, error) { return decode(fields), nil })
}

// interned keeps one copy of each text that many objects share: label keys,
// condition types, zones. With 100,000 Nodes these are most of the memory.
var interned = struct {
	mu    sync.Mutex
	texts map[string]string
}{texts: map[string]string{}}

const (
	maxInterned     = 1 << 14 // then the map is cleared
	maxInternedSize = 128
)

// intern returns the shared copy of a text.
func intern(s string) string {
	if len(s) == 0 || len(s) > maxInternedSize {
		return s
	}
	interned.mu.Lock()
	defer interned.mu.Unlock()
	if known, ok := interned.texts[s]; ok {
		return known
	}
	if len(interned.texts) >= maxInterned {
		clear(interned.texts)
	}
	interned.texts[s] = s
	return s
}

const maxOneText = 1 << 10 // bytes; those of a Node are about 300

// oneText makes texts of one object parts of a single one: alone, each would take the space of the next larger size. A text that another one contains
// takes none. Whoever keeps one of them keeps all. Longer texts stay alone: who writes them must cost neither memory nor time.
func oneText(texts ...*string) {
	size := 0
	for _, t := range texts {
		size += len(*t)
	}
	if size > maxOneText {
		return
	}
	var all strings.Builder
	all.Grow(size)
	for _, t := range texts {
		if !strings.Contains(all.String(), *t) {
			all.WriteString(*t)
		}
	}
	one := all.String()
	if len(one) < size {
		one = strings.Clone(one) // no larger than it must be
	}
	for _, t := range texts {
		at := strings.Index(one, *t)
		*t = one[at : at+len(*t)]
	}
}

// sharedMaps keeps one copy of labels and annotations that many objects have in common, as the Machines of one MachineSet have. Nobody
// changes a map of an object that was decoded.
var sharedMaps = struct {
	mu   sync.Mutex
	seed maphash.Seed
	maps map[uint64]map[string]string
}{seed: maphash.MakeSeed(), maps: map[uint64]map[string]string{}}

// Together they bound what sharedMaps keeps of objects that are gone: whoever may write a Machine can write other annotations each time.
const (
	maxSharedMaps    = 1 << 12 // then they are cleared; a map that is the object's own is of no use to another
	maxSharedMapSize = 1 << 12 // bytes of text
)

// sharedMap returns the shared copy of a map.
func sharedMap(m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	var sum uint64 // of all pairs, in any order
	size := 0
	for k, v := range m {
		if size += len(k) + len(v); size > maxSharedMapSize {
			return m
		}
		sum += maphash.String(sharedMaps.seed, k)*31 + maphash.String(sharedMaps.seed, v)
	}
	sharedMaps.mu.Lock()
	defer sharedMaps.mu.Unlock()
	if known, ok := sharedMaps.maps[sum]; ok && maps.Equal(known, m) {
		return known
	}
	if len(sharedMaps.maps) >= maxSharedMaps {
		clear(sharedMaps.maps)
	}
	sharedMaps.maps[sum] = m
	return m
}

// sharedLabels keeps one copy of each label that many Nodes have in common.
var sharedLabels = struct {
	mu    sync.Mutex
	pairs map[policy.Label]*policy.Label
}{pairs: map[policy.Label]*policy.Label{}}

// nodeLabels are the labels of a Node. Those with its name for a value, as kubernetes.io/hostname, are its own.
func nodeLabels(n *corev1.Node) policy.Labels {
	sharedLabels.mu.Lock()
	defer sharedLabels.mu.Unlock()
	return policy.SharedLabels(n.Labels, func(l policy.Label) *policy.Label {
		if l.Value == n.Name {
			return &policy.Label{Key: intern(l.Key), Value: n.Name}
		}
		if known, ok := sharedLabels.pairs[l]; ok {
			return known
		}
		own := &policy.Label{Key: intern(l.Key), Value: intern(l.Value)}
		if len(l.Key)+len(l.Value) <= maxInternedSize {
			if len(sharedLabels.pairs) >= maxInterned {
				clear(sharedLabels.pairs)
			}
			sharedLabels.pairs[*own] = own
		}
		return own
	})
}

// lastApplied is kubectl's copy of a whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// internMap shares keys and values of labels or annotations.
func internMap(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	shared := make(map[string]string, len(m))
	for k, v := range m {
		if k == lastApplied {
			continue
		}
		shared[intern(k)] = intern(v)
	}
	return shared
}
