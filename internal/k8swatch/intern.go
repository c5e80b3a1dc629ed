package k8swatch

import "sync"

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
