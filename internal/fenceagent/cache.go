package fenceagent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	metadataTimeout = 10 * time.Second
	maxMetadata     = 1 << 20
)

// metadataCache holds the metadata of agents, read once for each file.
type metadataCache struct {
	timeout time.Duration // bounds the reading of one file's metadata

	mu      sync.Mutex
	entries map[file]*cacheEntry
}

// cacheEntry is the metadata of one agent; ready is closed after it was read.
type cacheEntry struct {
	ready    chan struct{}
	metadata metadata
	err      error
}

// cache is shared: a thousand outlets behind one agent read it once.
var cache = metadataCache{timeout: metadataTimeout, entries: map[file]*cacheEntry{}}

// read returns the metadata of the agent. The first caller starts the reading,
// with a timeout independent of the caller's.
func (l *metadataCache) read(ctx context.Context, f file) (metadata, error) {
	l.mu.Lock()
	b, ok := l.entries[f]
	if !ok {
		b = &cacheEntry{ready: make(chan struct{})}
		l.entries[f] = b
		go l.fill(f, b)
	}
	l.mu.Unlock()
	select {
	case <-b.ready:
		return b.metadata, b.err
	case <-ctx.Done():
		return metadata{}, fmt.Errorf("wait for the agent's metadata: %w", ctx.Err())
	}
}

func (l *metadataCache) fill(f file, b *cacheEntry) {
	defer close(b.ready)
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	b.metadata, b.err = ask(ctx, f)
	if b.err != nil { // read again at the next use
		l.mu.Lock()
		delete(l.entries, f)
		l.mu.Unlock()
	}
}

func ask(ctx context.Context, f file) (metadata, error) {
	end, err := run(ctx, command{path: f.path, args: []string{"-o", "metadata"}, limit: maxMetadata})
	if err != nil {
		return metadata{}, fmt.Errorf("read the agent's metadata: %w", err)
	}
	if end.code != 0 {
		return metadata{}, fmt.Errorf("read the agent's metadata: exit status %d: %s", end.code, end.lastMessage())
	}
	m, err := decode(end.stdout)
	if err != nil {
		return metadata{}, err
	}
	if m.Version == "" {
		// ClusterLabs' own agents do not include it.
		if v, err := run(ctx, command{path: f.path, args: []string{"--version"}, limit: maxOutput}); err == nil && v.code == 0 {
			m.Version = lastLine(v.stdout)
		}
	}
	return m, nil
}
