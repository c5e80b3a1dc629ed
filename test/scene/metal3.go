package scene

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
		tick := time.NewTicker(metal3Every)
		defer tick.Stop()
		for {
			select {
			case <-s.life.Done():
				return
			case <-tick.C:
			}
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
