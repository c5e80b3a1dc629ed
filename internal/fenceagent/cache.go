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

// library keeps the metadata of agents, read once for each file.
type library struct {
	mu    sync.Mutex
	books map[file]*book
}

// book is the metadata of one agent; ready closes when it was read.
type book struct {
	ready    chan struct{}
	metadata metadata
	err      error
}

// shelf is the one library: a thousand outlets behind one agent ask it once.
var shelf = library{books: map[file]*book{}}

// read gives the metadata of the agent. Whoever is first reads it, for its own
// time and not that of the caller.
func (l *library) read(ctx context.Context, f file) (metadata, error) {
	l.mu.Lock()
	b, ok := l.books[f]
	if !ok {
		b = &book{ready: make(chan struct{})}
		l.books[f] = b
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

func (l *library) fill(f file, b *book) {
	defer close(b.ready)
	ctx, cancel := context.WithTimeout(context.Background(), metadataTimeout)
	defer cancel()
	b.metadata, b.err = ask(ctx, f)
	if b.err != nil { // asked again at the next use
		l.mu.Lock()
		delete(l.books, f)
		l.mu.Unlock()
	}
}

func ask(ctx context.Context, f file) (metadata, error) {
	end, err := run(ctx, command{path: f.path, args: []string{"-o", "metadata"}, limit: maxMetadata})
	if err != nil {
		return metadata{}, fmt.Errorf("read the agent's metadata: %w", err)
	}
	if end.code != 0 {
		return metadata{}, fmt.Errorf("read the agent's metadata: exit status %d: %s", end.code, end.complaint())
	}
	m, err := decode(end.stdout)
	if err != nil {
		return metadata{}, err
	}
	if m.Version == "" {
		// ClusterLabs' own agents do not put it there.
		if v, err := run(ctx, command{path: f.path, args: []string{"--version"}, limit: maxOutput}); err == nil && v.code == 0 {
			m.Version = lastLine(v.stdout)
		}
	}
	return m, nil
}
