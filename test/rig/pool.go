package rig

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// mostIdle is how many control planes a Pool keeps for the next tests: each API server takes half a gigabyte.
const mostIdle = 4

// Pool lends control planes to tests that run one after the other: a start costs two seconds of a
// processor. When a borrower calls Stop, what it made is deleted from etcd, and the control plane waits
// for the next that wants the same CRDs. One whose borrower has changed what it found, such as fenced's rights, or
// has stopped the API server, is ended.
//
// Before a borrower calls Stop it has ended every program that knows the address: the next one has the same.
type Pool struct {
	mu   sync.Mutex
	idle []*ControlPlane // the longest idle first
}

// loan is what a lent control plane was like when its borrower got it.
type loan struct {
	pool    *Pool            // nil once it cannot go back
	content map[string]int64 // the modification of each key in etcd
	audited int              // the length of the audit log
}

// StartAll is the function of the same name, with control planes of the pool.
func (p *Pool) StartAll(ctx context.Context, options ...Options) ([]*ControlPlane, error) {
	return startAll(ctx, p.start, options)
}

// Stop ends the control planes that nobody has.
func (p *Pool) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		c.end()
	}
	p.idle = nil
}

func (p *Pool) start(ctx context.Context, o Options) (*ControlPlane, error) {
	if c := p.take(o); c != nil {
		c.opts.GracePeriod = o.GracePeriod
		if c.resume(ctx) == nil {
			return c, nil
		}
		c.end()
	}
	o.Dir = "" // the borrower's directory goes before the control plane
	c, err := Start(ctx, o)
	if err != nil || o.Bare {
		return c, err
	}
	content, err := c.content(ctx)
	if err != nil {
		c.end()
		return nil, err
	}
	c.loan = &loan{pool: p, content: content}
	return c, nil
}

// take returns an idle control plane that has what the options want, or nil.
func (p *Pool) take(o Options) *ControlPlane {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.idle, func(c *ControlPlane) bool { return c.opts.serves(o) })
	if i < 0 {
		return nil
	}
	c := p.idle[i]
	p.idle = slices.Delete(p.idle, i, i+1)
	return c
}

// serves: nil sets are the default ones, empty sets are none.
func (o Options) serves(wanted Options) bool {
	return slices.Equal(o.CRDs, wanted.CRDs) && (o.CRDs == nil) == (wanted.CRDs == nil) &&
		o.NoManager == wanted.NoManager && o.Bare == wanted.Bare
}

// resume starts the controller manager: a new one knows nothing of the Nodes before.
func (c *ControlPlane) resume(ctx context.Context) error {
	if c.opts.GracePeriod == 0 {
		c.opts.GracePeriod = defaultGracePeriod
	}
	log, err := c.auditLog()
	if err != nil {
		return err
	}
	c.loan.audited = bytes.LastIndexByte(log, '\n') + 1
	if err := c.Died(); err != nil || c.opts.NoManager {
		return err
	}
	return c.startManager(ctx)
}

// giveBack returns a lent control plane to its pool, and reports whether it could. The borrower's
// ControlPlane is then empty: the next borrower has one of its own.
func (c *ControlPlane) giveBack() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := c.etcdPort == nil
	if ended || c.loan == nil || c.loan.pool == nil || c.dir.keep.Load() || c.scheduler != nil {
		return false
	}
	c.manager.kill()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if c.clear(ctx) != nil {
		return false
	}
	next := &ControlPlane{
		bin: c.bin, opts: c.opts, ca: c.ca, loan: c.loan, etcd: c.etcd, api: c.api,
		etcdPort: c.etcdPort, peerPort: c.peerPort, apiPort: c.apiPort, managerPort: c.managerPort,
		client: c.client, dynamic: c.dynamic, mapper: c.mapper,
	}
	next.dir.path, c.dir.path = c.dir.path, ""
	c.loan, c.etcd, c.api, c.manager = nil, nil, nil, nil
	c.etcdPort, c.peerPort, c.apiPort, c.managerPort = nil, nil, nil, nil
	next.loan.pool.put(next)
	return true
}

// keepFromPool: the caller has mu. It is for a control plane whose API server is stopped or frozen.
func (c *ControlPlane) keepFromPool() {
	if c.loan != nil {
		c.loan.pool = nil
	}
}

func (p *Pool) put(c *ControlPlane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
	if len(p.idle) > mostIdle {
		p.idle[0].end()
		p.idle = slices.Delete(p.idle, 0, 1)
	}
}

// registry is the prefix of all that an API server stores.
const registry = "/registry/"

// ownKeys are what the API server changes by itself.
var ownKeys = [][]byte{
	[]byte(registry + "leases/kube-system/apiserver-"),
	[]byte(registry + "masterleases/"),
	[]byte(registry + "peerserverleases/"),
	[]byte(registry + "ranges/"),
}

// fixed are what an API server needs time to serve anew when it changes.
var fixed = [][]byte{
	[]byte(registry + "apiextensions.k8s.io/"),
	[]byte(registry + "apiregistration.k8s.io/"),
}

func (c *ControlPlane) store() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{"http://" + c.etcdPort.address()}, DialTimeout: time.Minute})
}

// content returns the modification of each key.
func (c *ControlPlane) content(ctx context.Context) (map[string]int64, error) {
	store, err := c.store()
	if err != nil {
		return nil, fmt.Errorf("read what etcd holds: %w", err)
	}
	defer store.Close()
	return contentOf(ctx, store)
}

func contentOf(ctx context.Context, store *clientv3.Client) (map[string]int64, error) {
	r, err := store.Get(ctx, registry, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("read what etcd holds: %w", err)
	}
	content := map[string]int64{}
	for _, kv := range r.Kvs {
		if !startsWith(kv.Key, ownKeys) {
			content[string(kv.Key)] = kv.ModRevision
		}
	}
	return content, nil
}

func startsWith(key []byte, prefixes [][]byte) bool {
	return slices.ContainsFunc(prefixes, func(p []byte) bool { return bytes.HasPrefix(key, p) })
}

// clear deletes from etcd what was added since the loan began, until nothing is. The API server watches etcd
// and follows. It returns an error if anything else differs.
func (c *ControlPlane) clear(ctx context.Context) error {
	store, err := c.store()
	if err != nil {
		return err
	}
	defer store.Close()
	for {
		now, err := contentOf(ctx, store)
		if err != nil {
			return err
		}
		for key, was := range c.loan.content {
			if now[key] != was {
				return fmt.Errorf("%s was changed", key)
			}
			delete(now, key)
		}
		if len(now) == 0 {
			return nil
		}
		for key := range now {
			if startsWith([]byte(key), fixed) {
				return fmt.Errorf("%s was added", key)
			}
			if _, err := store.Delete(ctx, key); err != nil {
				return fmt.Errorf("delete %s: %w", key, err)
			}
		}
	}
}
