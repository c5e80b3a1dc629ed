package k8swatch

import (
	"sync"

	"github.com/fenced/fenced/internal/policy"
)

// journal collects changes until they are read. It keeps only the last state of
// each object, so it never grows beyond the size of the cluster.
type journal struct {
	mu      sync.Mutex
	pending map[policy.ObjectID]policy.Change
}

func (j *journal) add(ch policy.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.pending == nil {
		j.pending = map[policy.ObjectID]policy.Change{}
	}
	j.pending[ch.ID] = ch
}

// drain returns the changes, deletions first: an object that came back at another
// version of its kind must not be removed after it was added. One that does not count is
// as good as deleted.
func (j *journal) drain(counts func(policy.ObjectID) bool) []policy.Change {
	j.mu.Lock()
	pending := j.pending
	j.pending = nil
	j.mu.Unlock()
	for id := range pending {
		if !counts(id) {
			pending[id] = policy.Change{ID: id}
		}
	}
	list := make([]policy.Change, 0, len(pending))
	for _, ch := range pending {
		if ch.Value == nil && ch.Err == nil {
			list = append(list, ch)
		}
	}
	for _, ch := range pending {
		if ch.Value != nil || ch.Err != nil {
			list = append(list, ch)
		}
	}
	return list
}
