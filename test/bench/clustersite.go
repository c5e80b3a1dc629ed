package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/etcdstore"
	"github.com/fenced/fenced/test/apiserver"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// site is what a measurement of many clusters runs on: an etcd, a stand-in for the API server of each cluster, their BMCs, and
// several daemons.
type site struct {
	ClustersOptions
	dir       string
	etcd      *rig.EtcdCluster
	members   []*member
	instances []*peerDaemon
	program   string
	seen      claims // of all that was read of the audit logs
}

// member is one cluster of the site.
type member struct {
	name  string
	plane *rig.ControlPlane
	api   *apiserver.Server
	// client writes without a connection: what it costs is not part of what is measured.
	client kubernetes.Interface
	// nodes are those that fail, one for each condition; others are the rest, of the cluster with a fault only.
	nodes, others []*corev1.Node
	targets       []*target
	hung          atomic.Pointer[chan struct{}] // closed when the API server answers fenced again
	asked         atomic.Int64                  // requests of fenced
}

// The checks of ten clusters time out one after another, so that their decisions do not meet.
const (
	phases    = 10
	phaseStep = 100 * time.Millisecond
	// fewImages keeps 100,000 Nodes in the memory of one machine: the bench of one cluster has Nodes of the usual size.
	fewImages = 5
)

// timeout is that of the check of the i-th cluster.
func (s *site) timeout(i int) time.Duration {
	return s.Timeout + time.Duration(i%phases)*phaseStep
}

// build starts everything but the daemons.
func (s *site) build(ctx context.Context) (err error) {
	if s.program = s.Fenced; s.program == "" {
		s.tell("building fenced")
		programs, err := scene.Build(ctx, s.dir, false)
		if err != nil {
			return err
		}
		s.program = programs.Fenced
	}
	s.tell("starting an etcd of three members")
	if s.etcd, err = rig.StartEtcd(ctx, rig.EtcdOptions{Progress: s.Progress, Dir: s.dir}); err != nil {
		return err
	}
	s.tell("starting %d APIs with %d Nodes each", s.Clusters, s.Nodes)
	s.members = make([]*member, s.Clusters)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range s.members {
		s.members[i] = &member{name: fmt.Sprintf("c%03d", i)}
		g.Go(func() error { return s.startMember(gctx, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	s.tell("storing %d pins, one for each host", s.Pins)
	if err := s.storePins(ctx); err != nil {
		return err
	}
	return s.writeFiles()
}

func (s *site) startMember(ctx context.Context, i int) (err error) {
	m := s.members[i]
	o := rig.Options{NoManager: true, Dir: s.dir, CRDs: []rig.CRDs{}, StandIn: func(audit io.Writer) (_ rig.API, err error) {
		m.api, err = apiserver.Start(apiserver.Options{Audit: audit, Before: m.before})
		return m.api, err
	}}
	if i == 0 {
		o.CRDs = []rig.CRDs{rig.OpenShift} // of the checks that are broken
	}
	if m.plane, err = rig.Start(ctx, o); err != nil {
		return err
	}
	cfg := m.api.RESTConfig("bench", rig.AdminGroup)
	m.client, err = kubernetes.NewForConfig(&rest.Config{Host: cfg.Host, BearerToken: cfg.BearerToken, QPS: -1, Transport: inProcess{m.api},
		ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"}})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for n := range s.Nodes {
		node := newNode(fmt.Sprintf("node-%05d", n), newUUID(), n)
		node.Status.Images = node.Status.Images[:fewImages]
		if node, err = m.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a Node: %w", err)
		}
		switch {
		case n < len(conditions):
			// The BMC is that of another machine: fenced opens a session, refuses the host, and switches nothing. So the
			// clusters stay as they are.
			t := &target{uuid: newUUID(), asked: make(chan time.Time, 1)}
			if err := t.start(ctx); err != nil {
				return err
			}
			m.nodes, m.targets = append(m.nodes, node), append(m.targets, t)
		case i == 0:
			m.others = append(m.others, node)
		}
	}
	return nil
}

// before counts the requests of fenced, and makes it wait for every answer while the API server hangs.
func (m *member) before(ctx context.Context, q apiserver.Request) error {
	if _, sends := ctx.Deadline(); !sends && q.User == rig.FencedUser { // a watch that sends more has a deadline
		m.asked.Add(1)
	}
	if again := m.hung.Load(); again != nil && q.User == rig.FencedUser {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-*again:
		}
	}
	return nil
}

// hang makes the API server hang until the returned function is called.
func (m *member) hang() (end func()) {
	again := make(chan struct{})
	m.hung.Store(&again)
	return func() { m.hung.Store(nil); close(again) }
}

// inProcess sends requests to a handler without a connection.
type inProcess struct{ http.Handler }

func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// storePins stores what a BMC health check of all hosts would have stored by now.
func (s *site) storePins(ctx context.Context) error {
	store, err := s.openStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4 * writers)
	for i := range s.Pins {
		g.Go(func() error {
			uuid, host := newUUID(), fmt.Sprintf("c%03d/stored-%06d", i%s.Clusters, i)
			address := fmt.Sprintf("ipmi://198.19.%d.%d:623", i>>8&0xff, i&0xff)
			_, err := state.SavePin(ctx, store, state.Pin{Host: host, Node: host[5:], Address: address, Devices: address,
				SystemUUID: uuid, BMCUUID: uuid, Class: "a maker, a product, a firmware", At: time.Now().UTC()})
			return err
		})
	}
	return g.Wait()
}

func (s *site) openStore(ctx context.Context) (state.Store, error) {
	return etcdstore.Open(ctx, etcdstore.Config{Endpoints: s.etcd.Endpoints(), Prefix: prefix, DialTimeout: time.Minute})
}

func instanceName(i int) string { return fmt.Sprint("instance-", i+1) }

const (
	prefix          = "/fenced/"
	clustersPolicy  = "policies.d/policies.yaml"
	clustersHosts   = "hosts.d/hosts.yaml"
	instancesConfig = `instance: %[1]s
clusters:
%[2]s
hosts: ../hosts.d
policies: ../policies.d
state: {engine: etcd, etcd: {endpoints: [%[3]s], prefix: %[4]s}}
audit: {path: audit.jsonl}
control: {socket: sock, pauseFile: paused}
metrics: {listen: ""}
sweep: {interval: 0s} # what is asked of a BMC here is asked to decide
guards: {quietPeriod: 0s, maxInFlightTotal: 1000, startsPerHour: 0}
`
)

// writeFiles writes what all daemons share: their hosts and policies.
func (s *site) writeFiles() error {
	var hosts []any
	var policies strings.Builder
	for phase := range min(phases, len(s.members)) {
		var names []string
		for i := phase; i < len(s.members); i += phases {
			names = append(names, s.members[i].name)
		}
		timeout := s.timeout(phase)
		fmt.Fprintf(&policies, `---
apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: workers-%[1]d}
spec:
  clusters: [%[2]s]
  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ""}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: %[3]s}]
  limit: 40%%
  strategy: PowerCycle
`, phase, strings.Join(names, ", "), timeout)
	}
	for _, m := range s.members {
		for i, t := range m.targets {
			hosts = append(hosts, map[string]any{"node": m.nodes[i].Name, "cluster": m.name, "bmc": map[string]any{
				"address": "ipmi://" + t.relay.Addr(), "username": user, "passwordFile": filepath.Join(s.dir, "password")}})
		}
	}
	text, err := yaml.Marshal(map[string]any{"hosts": hosts})
	if err != nil {
		return fmt.Errorf("encode hosts.d: %w", err)
	}
	return rig.WriteFiles(s.dir, map[string][]byte{clustersHosts: text, clustersPolicy: []byte(policies.String()), "password": []byte(password)})
}

// peerDaemon is one of the daemons that share the clusters.
type peerDaemon struct {
	*process
	name   string
	dir    string
	client *api.Client
	relays []*tcpRelay // to the members of the etcd
	start  func() error
	read   int64 // bytes of the audit log
	lost   bool  // killed, frozen or cut off
}

// startInstances starts the daemons.
func (s *site) startInstances(n int) error {
	var clusters strings.Builder
	for _, m := range s.members {
		kubeconfig, err := m.plane.Kubeconfig(rig.FencedUser)
		if err != nil {
			return err
		}
		fmt.Fprintf(&clusters, "  - {name: %s, kubeconfig: %s, mode: evaluate}\n", m.name, kubeconfig)
	}
	for i := range n {
		p := &peerDaemon{name: instanceName(i)}
		p.dir = filepath.Join(s.dir, p.name)
		p.client = api.New(filepath.Join(p.dir, "sock"))
		var endpoints []string
		for _, e := range s.etcd.Endpoints() {
			r, err := startTCPRelay(strings.TrimPrefix(e, "http://"))
			if err != nil {
				return err
			}
			p.relays, endpoints = append(p.relays, r), append(endpoints, "http://"+r.Addr())
		}
		config := fmt.Sprintf(instancesConfig, p.name, clusters.String(), strings.Join(endpoints, ", "), prefix)
		if err := rig.WriteFiles(s.dir, map[string][]byte{p.name + "/fenced.yaml": []byte(config)}); err != nil {
			return err
		}
		p.start = func() (err error) {
			p.process, err = startProcess(p.dir, p.name, s.program, "--config", filepath.Join(p.dir, "fenced.yaml"))
			return err
		}
		if err := p.start(); err != nil {
			return err
		}
		s.instances = append(s.instances, p)
	}
	return nil
}

// stop ends everything.
func (s *site) stop(keep bool) {
	for _, p := range s.instances {
		p.kill()
		<-p.done
		for _, r := range p.relays {
			r.Stop()
		}
	}
	for _, m := range s.members {
		for _, t := range m.targets {
			t.relay.Stop()
			t.bmc.Stop()
		}
		if m.plane != nil {
			m.plane.Stop()
		}
	}
	if s.etcd != nil {
		if keep {
			s.etcd.KeepLogs()
		}
		s.etcd.Stop()
	}
}

// tcpRelay passes connections on to an address until it is cut: then nothing passes, in either direction, and connections stay open,
// as in a network that is partitioned.
type tcpRelay struct {
	net.Listener
	to string

	mu    sync.Mutex
	open  chan struct{} // closed while bytes may pass
	conns map[net.Conn]bool
	ended bool
	wg    sync.WaitGroup
}

func startTCPRelay(to string) (*tcpRelay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the clients of %s: %w", to, err)
	}
	r := &tcpRelay{Listener: l, to: to, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(r.open)
	r.wg.Go(r.accept)
	return r, nil
}

func (r *tcpRelay) Addr() string { return r.Listener.Addr().String() }

// Cut ends the passage; Mend lets what waits through.
func (r *tcpRelay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = make(chan struct{})
}

// Mend is the end of Cut.
func (r *tcpRelay) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.open:
	default:
		close(r.open)
	}
}

// Stop ends the relay and every connection.
func (r *tcpRelay) Stop() {
	r.Close()
	r.Mend()
	r.mu.Lock()
	r.ended = true
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *tcpRelay) accept() {
	for {
		front, err := r.Listener.Accept()
		if err != nil {
			return // closed
		}
		r.wg.Go(func() {
			r.await()
			back, err := net.Dial("tcp", r.to)
			if err != nil {
				front.Close()
				return
			}
			r.mu.Lock()
			r.conns[front], r.conns[back] = true, true
			if r.ended {
				front.Close()
				back.Close()
			}
			r.mu.Unlock()
			r.wg.Go(func() { r.pass(front, back) })
			r.pass(back, front)
		})
	}
}

// await returns as soon as bytes may pass.
func (r *tcpRelay) await() {
	r.mu.Lock()
	open := r.open
	r.mu.Unlock()
	<-open
}

// pass passes what one end sends to the other, until one of them is closed.
func (r *tcpRelay) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.await()
		if n > 0 {
			if _, failed := to.Write(buf[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			r.mu.Lock()
			delete(r.conns, from)
			r.mu.Unlock()
			return
		}
	}
}
