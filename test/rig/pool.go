package rig

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pool lends control planes to tests: a start costs two seconds of a processor. When a borrower calls Stop, etcd gets the
// content back that it had when the API server had started. The next borrower gets that etcd and API server, with
// CRDs, rights and a controller manager of its own. A control plane whose API server was stopped or frozen is not lent again.
//
// Few wait for a borrower: one that nobody has still takes a processor two seconds in a minute.
//
// Before a borrower calls Stop it has ended every program that knows the address: the next one has the same.
type Pool struct {
	mu   sync.Mutex
	idle []*ControlPlane
}

// loan is what a control plane of a pool was like before it was first lent.
type loan struct {
	pool    *Pool // nil once it cannot go back
	content map[string]stored
	groups  []string                      // that the API server serves
	watched []schema.GroupVersionResource // those of which it has a cache
	audited int                           // the length of the audit log when its borrower got it
}

// stored is what etcd has for a key.
type stored struct {
	value   []byte
	changed int64
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
	if o.StandIn != nil || len(o.Assets) > 0 { // the first starts at once, the second is for the demo
		return Start(ctx, o)
	}
	o.Dir, o.pooled = "", true // the borrower's directory goes before the control plane
	c, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	begin := c.startServer
	if idle := p.take(o); idle != nil {
		idle.opts = c.opts
		c, begin = idle, func(context.Context) error { return idle.Died() }
	}
	return c.started(ctx, begin, func(ctx context.Context) error { return c.lend(ctx, p) }, c.furnish)
}

// take takes an idle control plane whose API server has the arguments that the options ask for.
func (p *Pool) take(o Options) *ControlPlane {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range slices.Backward(p.idle) {
		if c.opts.NodeRestriction == o.NodeRestriction {
			p.idle = slices.Delete(p.idle, i, i+1)
			return c
		}
	}
	return nil
}

// maxIdle is how many control planes wait for a borrower. While tests wait for their turn none does; at the end, and beside tests
// that need no control plane, those that are left over end.
const maxIdle = 2

func (p *Pool) put(c *ControlPlane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
	if len(p.idle) > maxIdle {
		p.idle[0].end()
		p.idle = p.idle[1:]
	}
}

// lend notes what a control plane is like before the borrower has it.
func (c *ControlPlane) lend(ctx context.Context, p *Pool) (err error) {
	if c.loan == nil {
		c.loan = &loan{pool: p}
		if c.loan.groups, err = c.groups(ctx); err != nil {
			return err
		}
		if c.loan.watched, err = c.watched(ctx); err != nil {
			return err
		}
		if c.loan.content, err = c.content(ctx); err != nil {
			return err
		}
	}
	log, err := c.auditLog()
	c.loan.audited = bytes.LastIndexByte(log, '\n') + 1
	return err
}

// giveBack returns a lent control plane to its pool, and reports whether it could. The borrower's
// ControlPlane is then empty: the next borrower has one of its own.
func (c *ControlPlane) giveBack() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := c.etcdPort == nil
	if ended || c.loan == nil || c.loan.pool == nil || c.dir.keep.Load() {
		return false
	}
	for _, p := range []*process{c.scheduler, c.manager} {
		p.kill()
	}
	ctx, cancel := context.WithTimeout(context.Background(), busyTime)
	defer cancel()
	if c.restore(ctx) != nil {
		return false
	}
	c.schedulerPort.release()
	next := &ControlPlane{
		opts: Options{NodeRestriction: c.opts.NodeRestriction}, bin: c.bin, ca: c.ca, loan: c.loan, etcd: c.etcd, api: c.api,
		etcdPort: c.etcdPort, peerPort: c.peerPort, apiPort: c.apiPort, managerPort: c.managerPort,
		client: c.client, dynamic: c.dynamic, mapper: c.mapper,
	}
	next.dir.path, c.dir.path = c.dir.path, ""
	c.loan, c.etcd, c.api, c.manager, c.scheduler = nil, nil, nil, nil, nil
	c.etcdPort, c.peerPort, c.apiPort, c.managerPort, c.schedulerPort = nil, nil, nil, nil, nil
	next.loan.pool.put(next)
	return true
}

// keepFromPool: the caller has mu. It is for a control plane whose API server is stopped or frozen.
func (c *ControlPlane) keepFromPool() {
	if c.loan != nil {
		c.loan.pool = nil
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

func (c *ControlPlane) store() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{"http://" + c.etcdPort.address()}, DialTimeout: time.Minute})
}

// content returns what etcd holds.
func (c *ControlPlane) content(ctx context.Context) (map[string]stored, error) {
	store, err := c.store()
	if err != nil {
		return nil, fmt.Errorf("read what etcd holds: %w", err)
	}
	defer store.Close()
	return contentOf(ctx, store)
}

func contentOf(ctx context.Context, store *clientv3.Client, opts ...clientv3.OpOption) (map[string]stored, error) {
	r, err := store.Get(ctx, registry, append(opts, clientv3.WithPrefix())...)
	if err != nil {
		return nil, fmt.Errorf("read what etcd holds: %w", err)
	}
	content := map[string]stored{}
	for _, kv := range r.Kvs {
		own := func(prefix []byte) bool { return bytes.HasPrefix(kv.Key, prefix) }
		if !slices.ContainsFunc(ownKeys, own) {
			content[string(kv.Key)] = stored{value: kv.Value, changed: kv.ModRevision}
		}
	}
	return content, nil
}

// restore gives etcd the content from before the loan, and returns when the API server has taken it up.
func (c *ControlPlane) restore(ctx context.Context) error {
	store, err := c.store()
	if err != nil {
		return err
	}
	defer store.Close()
	if err := c.loan.restore(ctx, store); err != nil {
		return err
	}
	err = wait(ctx, "the API groups of the CRDs to go", func() (bool, error) {
		groups, err := c.groups(ctx)
		return slices.Equal(groups, c.loan.groups), err
	})
	if err != nil {
		return err
	}
	if err := c.awaitRights(ctx); err != nil {
		return err
	}
	if err := c.loan.restore(ctx, store); err != nil {
		return err
	}
	return c.awaitCaches(ctx)
}

// restore deletes, and writes, until etcd holds what it held: the API server may still have been at work.
func (l *loan) restore(ctx context.Context, store *clientv3.Client) error {
	for {
		now, err := contentOf(ctx, store, clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		same := len(now) == len(l.content)
		for key, was := range l.content {
			if now[key].changed != was.changed {
				same = false
				r, err := store.Put(ctx, key, string(was.value))
				if err != nil {
					return fmt.Errorf("restore %s: %w", key, err)
				}
				was.changed = r.Header.Revision
				l.content[key] = was
			}
			delete(now, key)
		}
		for key := range now {
			if _, err := store.Delete(ctx, key); err != nil {
				return fmt.Errorf("delete %s: %w", key, err)
			}
		}
		if same {
			return nil
		}
	}
}

// groups are the API groups that are served.
func (c *ControlPlane) groups(ctx context.Context) ([]string, error) {
	list, err := c.client.Groups(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, g := range list {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	return names, nil
}

// markers give a user two rights, each by both kinds of what the authorizer watches.
const markers = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pool-marker}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pool-marker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pool-marker}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: pool-marker, namespace: default}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: pool-marker, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: pool-marker}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
`

// awaitRights returns when the API server's authorizer has seen every change of rights until now: it watches roles and bindings in the order of
// their changes.
func (c *ControlPlane) awaitRights(ctx context.Context) error {
	user := fmt.Sprintf("pool-marker-%d", time.Now().UnixNano())
	if err := c.Apply(ctx, fmt.Appendf(nil, markers, user)); err != nil {
		return err
	}
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "nodes"}, {Verb: "get", Resource: "secrets", Namespace: metav1.NamespaceDefault},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &right}}
		err := wait(ctx, "the rights to be as they were", func() (bool, error) {
			r, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && r.Status.Allowed, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// watched are the resources that can be listed and watched: of them the API server has caches.
func (c *ControlPlane) watched(ctx context.Context) ([]schema.GroupVersionResource, error) {
	lists, err := c.client.Resources(ctx)
	if err != nil {
		return nil, err
	}
	var all []schema.GroupVersionResource
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("list the API's resources: %w", err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
				all = append(all, group.WithResource(r.Name))
			}
		}
	}
	return all, nil
}

// awaitCaches returns when the API server's caches hold what etcd holds: a list that names no version is that new.
func (c *ControlPlane) awaitCaches(ctx context.Context) error {
	for _, r := range c.loan.watched {
		if _, err := c.dynamic.Resource(r).List(ctx, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("list %s: %w", r, err)
		}
	}
	return nil
}
