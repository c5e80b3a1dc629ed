package fenceagent

import (
	"context"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// metadata is what an agent reports about itself.
type metadata struct {
	Name       string      `xml:"name,attr"`
	Version    string      `xml:"version,attr"`
	Parameters []parameter `xml:"parameters>parameter"`
	Actions    []action    `xml:"actions>action"`
	// names are all names of the agent: a link or a copy of an agent counts as the same.
	names []string
}

type parameter struct {
	Name    string `xml:"name,attr"`
	Content struct {
		Default string `xml:"default,attr"`
	} `xml:"content"`
}

type action struct {
	Name      string `xml:"name,attr"`
	Automatic string `xml:"automatic,attr"`
}

// decode parses the output of -o metadata. It rejects an agent that does not
// switch power or does not report its state.
func decode(text []byte) (metadata, error) {
	var doc struct {
		XMLName xml.Name `xml:"resource-agent"`
		metadata
	}
	if err := xml.Unmarshal(text, &doc); err != nil {
		return metadata{}, fmt.Errorf("decode the agent's metadata: %w", err)
	}
	m := doc.metadata
	for _, need := range []string{"on", "off", "status"} {
		if _, ok := m.action(need); !ok {
			return metadata{}, fmt.Errorf("the agent has no action %q: it cannot be used as a power level", need)
		}
	}
	// Agents that disconnect a node from a network or a disk have no reboot action,
	// or connect it again automatically. The host keeps running: their off proves
	// nothing. // I1
	on, _ := m.action("on")
	if _, reboots := m.action("reboot"); !reboots || on.Automatic == "1" {
		return metadata{}, fmt.Errorf("the agent fences network or storage, not power; it cannot prove that a host is off")
	}
	return m, nil
}

func (m metadata) action(name string) (action, bool) {
	for _, a := range m.Actions {
		if a.Name == name {
			return a, true
		}
	}
	return action{}, false
}

func (m metadata) parameter(name string) (parameter, bool) {
	for _, p := range m.Parameters {
		if p.Name == name {
			return p, true
		}
	}
	return parameter{}, false
}

// firstKnown returns the first of names that the agent supports: a parameter's
// name and its older one.
func (m metadata) firstKnown(names ...string) (string, bool) {
	for _, n := range names {
		if _, ok := m.parameter(n); ok {
			return n, true
		}
	}
	return "", false
}

// similar returns the names that may have been meant by name.
func (m metadata) similar(name string) []string {
	var near []string
	plain := strings.NewReplacer("-", "", "_", "")
	for _, p := range m.Parameters {
		a, b := plain.Replace(strings.ToLower(name)), plain.Replace(p.Name)
		if a == b || (len(a) > 2 && strings.Contains(b, a)) || (len(b) > 2 && strings.Contains(a, b)) {
			near = append(near, p.Name)
		}
	}
	return near
}

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
	m.names = []string{filepath.Base(f.path), filepath.Base(f.resolved), m.Name}
	if m.Version == "" {
		// ClusterLabs' own agents do not include it.
		if v, err := run(ctx, command{path: f.path, args: []string{"--version"}, limit: maxOutput}); err == nil && v.code == 0 {
			m.Version = lastLine(v.stdout)
		}
	}
	return m, nil
}
