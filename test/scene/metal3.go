package scene

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/test/rig"
)

// metal3Every is how often the stand-in compares a host with what is wanted. The real
// bare-metal operator does it once a minute, and Ironic as often.
const metal3Every = 500 * time.Millisecond

// Metal3 is a stand-in for the bare-metal operator (at 02aa505, of August 2026) and its Ironic, which
// are no Go modules that a test could build. It enforces spec.online of each BareMetalHost: a
// host must be on unless the annotation reboot.metal3.io or reboot.metal3.io/KEY
// requests that it is off. It takes the former off once the host is off; the latter are for those who have
// set them. It leaves detached and paused hosts alone. It writes
// status.poweredOn of the hosts that it does not leave alone.
type Metal3 struct {
	// IgnoresLocks makes it disregard the requests of others.
	IgnoresLocks bool

	mu       sync.Mutex
	behind   bool           // status.poweredOn is not written
	switched map[string]int // how often it switched a host on, and off: "on NAME", "off NAME"
}

// RunMetal3 runs the stand-in until the scene ends.
func (s *Scene) RunMetal3(m *Metal3) {
	m.switched = map[string]int{}
	s.wg.Go(func() {
		for rig.Sleep(s.life, metal3Every) {
			for _, w := range s.Workers {
				if w.Metal3 {
					m.enforce(s.life, s, w)
				}
			}
		}
	})
}

// Switched is how often the stand-in switched a host on and off.
func (m *Metal3) Switched(host string) (on, off int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.switched["on "+host], m.switched["off "+host]
}

// FallBehind makes the stand-in leave status.poweredOn as it is, or write it again. The real one
// reads the power anew once a minute.
func (m *Metal3) FallBehind(behind bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.behind = behind
}

// tellsPower reports whether the stand-in writes status.poweredOn.
func (m *Metal3) tellsPower() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.behind
}

// enforce compares one host with what is wanted. A read that fails changes nothing.
func (m *Metal3) enforce(ctx context.Context, s *Scene, w *Worker) {
	h, err := s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return
	}
	notes := h.GetAnnotations()
	_, detached := notes["baremetalhost.metal3.io/detached"]
	_, paused := notes["baremetalhost.metal3.io/paused"]
	on, _, _ := unstructured.NestedBool(h.Object, "spec", "online")
	on = on && (m.IgnoresLocks || !slices.ContainsFunc(slices.Collect(maps.Keys(notes)), requestsOff))
	if detached || paused {
		return
	}
	is := w.BMC.Power()
	if said, _, _ := unstructured.NestedBool(h.Object, "status", "poweredOn"); said != is && m.tellsPower() {
		_ = s.Management.SetStatus(ctx, rig.HostResource, w.Name, map[string]any{"poweredOn": is}) // or at the next tick
	}
	if _, once := notes[rebootOnce]; once && !is && !m.IgnoresLocks {
		_ = annotate(ctx, s.Management.Dynamic(), rig.HostResource, w.Name, map[string]any{rebootOnce: nil}) // or at the next tick
		return
	}
	if is == on || w.BMC.SetPower(on) != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if on {
		m.switched["on "+w.Name]++
	} else {
		m.switched["off "+w.Name]++
	}
}

// rebootOnce is the annotation that requests one reboot.
const rebootOnce = "reboot.metal3.io"

// requestsOff reports whether an annotation requests that the host is off.
func requestsOff(key string) bool {
	return key == rebootOnce || strings.HasPrefix(key, rebootOnce+"/")
}

// Metal3RemediationUser is the user of the stand-in for CAPM3's controller of Metal3Remediations.
const Metal3RemediationUser = "stand-in-metal3-remediation"

// What CAPM3 writes on a BareMetalHost, and on a request.
const (
	Metal3PowerRequest = "reboot.metal3.io/metal3-remediation-" // with the UID of the Metal3Remediation: the host is to be off
	Metal3Unhealthy    = "capm3.metal3.io/unhealthy"            // CAPM3 never chooses it again
	metal3Finalizer    = "metal3remediation.infrastructure.cluster.x-k8s.io"
)

// metal3Requests are the requests in the version in which CAPM3 reads and writes them.
var metal3Requests = rig.RemediationResource.GroupResource().WithVersion("v1beta2")

// RunMetal3Remediations runs a stand-in for the controller of Metal3Remediations of Metal3's provider for the
// Cluster API (CAPM3 at 2f6d76b, of August 2026) until the scene ends. It carries out every request, by its phase:
//   - Running: it requests that the bare-metal operator switches the host off, and waits for that. Then it saves
//     labels and annotations of the Node, and deletes the Node.
//   - Waiting: it withdraws its power request, waits until the host is on, and restores what it saved into the new
//     Node. After the timeout of the request, which began with Running, it tries again, retryLimit times: only the
//     deletion of the request ends that.
//   - Deleting machine: it has asked the owner of the Machine to replace it, and has marked the host.
//   - Failed: the owner of the host wants it off (online: false).
//
// It waits for status.poweredOn of the host without a deadline. From Kubernetes 1.28 on CAPM3 taints the Node (out-of-service)
// instead of deleting it. It needs RunMetal3, the Cluster API's v1beta2, and the Nodes on the management API.
func (s *Scene) RunMetal3Remediations(ctx context.Context) error {
	if err := s.Management.CreateNamespace(ctx, "capm3-system"); err != nil {
		return err
	}
	lease := rig.Lease{Namespace: "capm3-system", Name: "controller-leader-election-capm3", Holder: Metal3RemediationUser, Duration: time.Hour}
	if err := s.Management.PutLease(ctx, lease); err != nil {
		return err
	}
	return s.runStandIn(Metal3RemediationUser, nil, func(ctx context.Context, c standIn) {
		requests, _ := c.list(ctx, metal3Requests, labels.Everything())
		for _, r := range requests {
			if len(r.GetOwnerReferences()) > 0 { // else CAPM3 does nothing
				_ = c.metal3Remediation(ctx, metal3Remediation{Unstructured: r}) // at the next tick again
			}
		}
	})
}

// metal3Remediation is a request with what it is about.
type metal3Remediation struct {
	unstructured.Unstructured
	host *unstructured.Unstructured
	node *corev1.Node // nil if there is none
}

func (r metal3Remediation) powerRequest() string { return Metal3PowerRequest + string(r.GetUID()) }

// power reports whether the request has its annotation on the host, and whether the bare-metal operator has last read On.
func (r metal3Remediation) power() (asked, on bool) {
	_, asked = r.host.GetAnnotations()[r.powerRequest()]
	on, _, _ = unstructured.NestedBool(r.host.Object, "status", "poweredOn")
	return asked, on
}

// number is a field of the request; 0 if it has none.
func (r metal3Remediation) number(path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(r.Object, path...)
	return n
}

// timedOut reports whether the time for this attempt is over.
func (r metal3Remediation) timedOut() bool {
	text, _, _ := unstructured.NestedString(r.Object, "status", "lastRemediated")
	began, err := time.Parse(time.RFC3339, text)
	return err == nil && time.Since(began) > time.Duration(r.number("spec", "strategy", "timeoutSeconds"))*time.Second
}

// metal3Remediation does the next step for a request. What was done stands in the request, and on the host. The Machine,
// what the provider has between it and the host, the host and the Node have one name in a scene.
func (c standIn) metal3Remediation(ctx context.Context, r metal3Remediation) (err error) {
	machine := r.GetOwnerReferences()[0].Name
	if r.host, err = c.dynamic.Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, machine, metav1.GetOptions{}); err != nil {
		return err
	}
	if r.node, err = c.typed.CoreV1().Nodes().Get(ctx, machine, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		r.node = nil
	} else if err != nil {
		return err
	}
	phase, _, _ := unstructured.NestedString(r.Object, "status", "phase")
	online, _, _ := unstructured.NestedBool(r.host.Object, "spec", "online")
	switch {
	case !online && phase != "Failed":
		return c.metal3Phase(ctx, r, "Failed")
	case phase == "":
		return c.metal3Phase(ctx, r, "Running")
	case phase == "Running":
		return c.metal3Running(ctx, r)
	case phase == "Waiting":
		return c.metal3Waiting(ctx, r)
	}
	return nil
}

func (c standIn) metal3Running(ctx context.Context, r metal3Remediation) error {
	switch asked, on := r.power(); {
	case !slices.Contains(r.GetFinalizers(), metal3Finalizer):
		r.SetFinalizers(append(r.GetFinalizers(), metal3Finalizer))
		return c.update(ctx, r)
	case !asked:
		return annotate(ctx, c.dynamic, rig.HostResource, r.host.GetName(), map[string]any{r.powerRequest(): `{"mode":"hard"}`})
	case r.node == nil && !on:
		return c.metal3Phase(ctx, r, "Waiting")
	case on, r.node.DeletionTimestamp != nil:
		return nil // waits
	case r.GetAnnotations()[annotationsBackup] != encoded(r.node.Annotations) || r.GetAnnotations()[labelsBackup] != encoded(r.node.Labels):
		return annotate(ctx, c.dynamic, metal3Requests, r.GetName(), map[string]any{annotationsBackup: encoded(r.node.Annotations), labelsBackup: encoded(r.node.Labels)})
	}
	return c.typed.CoreV1().Nodes().Delete(ctx, r.node.Name, metav1.DeleteOptions{})
}

func (c standIn) metal3Waiting(ctx context.Context, r metal3Remediation) error {
	switch asked, on := r.power(); {
	case asked:
		return annotate(ctx, c.dynamic, rig.HostResource, r.host.GetName(), map[string]any{r.powerRequest(): nil})
	case !on:
		return nil // waits
	case r.node != nil && slices.Contains(r.GetFinalizers(), metal3Finalizer):
		return c.metal3Restore(ctx, r)
	case !r.timedOut():
		return nil // waits
	case r.number("status", "retryCount") != r.number("spec", "strategy", "retryLimit"):
		_ = unstructured.SetNestedField(r.Object, r.number("status", "retryCount")+1, "status", "retryCount") // its status is a map
		return c.metal3Phase(ctx, r, "Running")
	}
	if err := c.ownerRemediates(ctx, r.GetOwnerReferences()[0].Name); err != nil {
		return err
	}
	if err := annotate(ctx, c.dynamic, rig.HostResource, r.host.GetName(), map[string]any{Metal3Unhealthy: "capm3/UnhealthyNode"}); err != nil {
		return err
	}
	return c.metal3Phase(ctx, r, "Deleting machine")
}

// metal3Restore gives the new Node what was saved of the one that it has deleted, if it has. CAPM3 tries that only once.
func (c standIn) metal3Restore(ctx context.Context, r metal3Remediation) error {
	if saved := r.GetAnnotations(); saved[labelsBackup] != "" {
		r.node.Annotations, r.node.Labels = merged(saved[annotationsBackup], r.node.Annotations), merged(saved[labelsBackup], r.node.Labels)
		if _, err := c.typed.CoreV1().Nodes().Update(ctx, r.node, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	unstructured.RemoveNestedField(r.Object, "metadata", "annotations", annotationsBackup)
	unstructured.RemoveNestedField(r.Object, "metadata", "annotations", labelsBackup)
	r.SetFinalizers(slices.DeleteFunc(r.GetFinalizers(), func(f string) bool { return f == metal3Finalizer }))
	return c.update(ctx, r)
}

func (c standIn) update(ctx context.Context, r metal3Remediation) error {
	_, err := c.dynamic.Resource(metal3Requests).Namespace(rig.Namespace).Update(ctx, &r.Unstructured, metav1.UpdateOptions{})
	return err
}

// metal3Phase writes the status with this phase. The timeout begins with Running.
func (c standIn) metal3Phase(ctx context.Context, r metal3Remediation, phase string) error {
	if phase == "Running" {
		_ = unstructured.SetNestedField(r.Object, time.Now().UTC().Format(time.RFC3339), "status", "lastRemediated")
	}
	_ = unstructured.SetNestedField(r.Object, phase, "status", "phase")
	_, err := c.dynamic.Resource(metal3Requests).Namespace(rig.Namespace).UpdateStatus(ctx, &r.Unstructured, metav1.UpdateOptions{})
	return err
}

// ownerRemediates asks the owner of a Machine to replace it: only in the old list of conditions, as CAPM3 does.
func (c standIn) ownerRemediates(ctx context.Context, machine string) error {
	machines := c.dynamic.Resource(rig.CAPIResource("v1beta2", "machines")).Namespace(rig.Namespace)
	m, err := machines.Get(ctx, machine, metav1.GetOptions{})
	if err != nil {
		return err
	}
	path := []string{"status", "deprecated", "v1beta1", "conditions"}
	list, _, _ := unstructured.NestedSlice(m.Object, path...)
	list = append(slices.DeleteFunc(list, func(is any) bool { return is.(map[string]any)["type"] == "OwnerRemediated" }), map[string]any{
		"type": "OwnerRemediated", "status": "False", "severity": "Warning", "reason": "WaitingForRemediation", "lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339),
	})
	_ = unstructured.SetNestedSlice(m.Object, list, path...) // it was read as a list
	_, err = machines.UpdateStatus(ctx, m, metav1.UpdateOptions{})
	return err
}
