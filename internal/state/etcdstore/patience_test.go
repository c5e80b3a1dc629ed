package etcdstore

import (
	"time"

	"github.com/fenced/fenced/internal/state"
)

// ShortPace is how long a test waits for what an instance does after a while.
const ShortPace = 5 * time.Second

func init() {
	defaultCallTimeout = 30 * time.Second // on a busy machine an answer of etcd, or an election, may take many seconds
	pace = func(ttl time.Duration) time.Duration { return min(ttl, ShortPace) }
}

// ShortCalls makes the calls of a store as short as the product's. No goroutine may use it yet.
func ShortCalls(s state.Store) state.Store {
	s.(*store).callTimeout = 6 * time.Second
	return s
}
