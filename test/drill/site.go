package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/clientcmd"

	fencedapi "github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/test/apiserver"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// site is two bastions, an etcd of three members, an API server, and hosts with their BMCs, on one network.
type site struct {
	dir     string
	program string // the daemon
	net     *network
	history *history
	etcd    *rig.EtcdCluster
	cluster *rig.ControlPlane
	hosts   map[string]*host
	bastion map[string]*bastion
	life    context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu   sync.Mutex
	down map[int]bool      // members of etcd that are killed
	away map[string]string // hosts that hang or have not come back since, with the boot in which they hung
}

// host is a simulated host with its BMC and its kubelet. The kubelet reaches the API server whatever is cut: hosts that cannot are not what is drilled.
type host struct {
	name    string
	bmc     *ipmisim.GoBMC
	kubelet *rig.Kubelet
}

// bootDelay is much shorter than that of a server, and long enough that something can happen in it.
const bootDelay = 15 * time.Second

// password is that of every BMC.
const user, password = "fence", "the-right-one"

// newSite starts everything, the bastions last.
func newSite(ctx context.Context, dir, program string) (_ *site, err error) {
	s := &site{dir: dir, program: program, history: newHistory(), hosts: map[string]*host{}, bastion: map[string]*bastion{}, down: map[int]bool{}, away: map[string]string{}}
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if s.net, err = newNetwork(); err != nil {
		return nil, err
	}
	var places []rig.Place
	for _, m := range members {
		places = append(places, rig.Place{Address: addressOf(m), Enter: s.net.spaces[m].enter})
	}
	if s.etcd, err = rig.StartEtcd(ctx, rig.EtcdOptions{TLS: true, Dir: dir, Places: places}); err != nil {
		return nil, err
	}
	if s.cluster, err = rig.Start(ctx, rig.Options{CRDs: []rig.CRDs{}, Dir: dir, StandIn: s.startAPI}); err != nil {
		return nil, err
	}
	for i, name := range hostNames {
		if err := s.startHost(ctx, name, i); err != nil {
			return nil, err
		}
	}
	s.wg.Go(s.noteHealthy)
	if err := s.watchClaims(); err != nil {
		return nil, err
	}
	for _, name := range bastions {
		if s.bastion[name], err = s.newBastion(name); err != nil {
			return nil, err
		}
	}
	return s, s.awaitReady(ctx)
}

func (s *site) end() {
	for _, b := range s.bastion {
		b.want(-1)
	}
	s.stop()
	s.wg.Wait()
	for _, h := range s.hosts {
		h.bmc.Stop()
	}
	if s.cluster != nil {
		s.cluster.Stop()
	}
	if s.etcd != nil {
		s.etcd.Stop()
	}
}

// startAPI starts the API server, with a listener in the namespace of its own.
func (s *site) startAPI(audit io.Writer) (rig.API, error) {
	server, err := apiserver.Start(apiserver.Options{Addresses: []net.IP{addressOf(api).AsSlice()}, Audit: io.MultiWriter(audit, deletions{s})})
	if err != nil {
		return nil, err
	}
	return server, s.net.spaces[api].enter(func() error {
		l, err := net.Listen("tcp4", apiAddress())
		if err == nil {
			server.Serve(l)
		}
		return err
	})
}

func apiAddress() string { return netip.AddrPortFrom(addressOf(api), 6443).String() }

// deletions notes each deletion of a Node while the API server does it: the API server writes its audit log before it lets anybody see that
// the object is gone.
type deletions struct{ *site }

func (d deletions) Write(line []byte) (int, error) {
	var e struct {
		User struct {
			Username string `json:"username"`
		} `json:"user"`
		ObjectRef     authorizationv1.ResourceAttributes `json:"objectRef"`
		RequestObject *metav1.DeleteOptions              `json:"requestObject"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return 0, err
	}
	if h := d.hosts[e.ObjectRef.Name]; h != nil && e.ObjectRef.Resource == "nodes" {
		ev := event{Kind: deletion, By: e.User.Username, Host: h.name, On: h.bmc.Power()}
		if o := e.RequestObject; o != nil && o.Preconditions != nil && o.Preconditions.UID != nil && o.Preconditions.ResourceVersion != nil {
			ev.UID = string(*o.Preconditions.UID)
		}
		d.history.add(ev)
	}
	return len(line), nil
}

// startHost starts a host: its BMC listens in the namespace of the BMCs.
func (s *site) startHost(ctx context.Context, name string, number int) (err error) {
	h, id := &host{name: name}, string(uuid.NewUUID())
	if err := s.net.spaces[bmc].enter(func() (err error) {
		h.bmc, err = ipmisim.StartGo(s.life, ipmisim.Options{
			Addr: netip.AddrPortFrom(addressOf(bmc), uint16(6230+number)).String(), User: user, Password: password, UUID: id,
			Sessions: 32, // each kill leaves some behind for a minute
		})
		return err
	}); err != nil {
		return err
	}
	s.hosts[name] = h
	h.bmc.Intercept(func(c ipmisim.Command) *ipmisim.Reply {
		const chassis, control = 0x00, 0x02
		if c.NetFn == chassis && c.Cmd == control && len(c.Data) > 0 {
			s.history.add(event{Kind: command, By: bastionAt(c.From), Host: name, On: c.Data[0] == 1})
		}
		return nil
	})
	h.bmc.OnChange(func(on bool) { s.history.add(event{Kind: power, Host: name, On: on}) })
	client, err := s.cluster.KubeletClient(name)
	if err != nil {
		return err
	}
	h.kubelet = rig.NewKubelet(client, rig.KubeletOptions{
		NodeName: name, SystemUUID: id, Address: fmt.Sprintf("198.18.0.%d", 10+number), Power: h.bmc.Source,
		Labels: map[string]string{"drill/pool": "all"}, LeaseDuration: 10 * time.Second, BootDelay: bootDelay,
	})
	s.wg.Go(func() { _ = h.kubelet.Run(s.life) }) // its only error is a missing Power
	_, err = s.cluster.WaitNode(ctx, name, scene.IsReady)
	return err
}

func bastionAt(a net.Addr) string {
	if udp, ok := a.(*net.UDPAddr); ok {
		for _, name := range bastions {
			if udp.AddrPort().Addr().Unmap() == addressOf(name) {
				return name
			}
		}
	}
	return "somebody" // nobody whom the checker knows
}

// hang hangs a host, as if it had done so two minutes ago: its Lease is that old.
func (s *site) hang(ctx context.Context, name string) error {
	s.mu.Lock()
	s.away[name] = s.hosts[name].kubelet.BootID()
	s.mu.Unlock()
	s.history.add(event{Kind: hang, Host: name})
	s.hosts[name].kubelet.Hang()
	return s.cluster.AgeLease(ctx, name, 2*time.Minute)
}

// noteHealthy notes when a host that hung is healthy again: it runs, with a boot of its own and a Node that is Ready. A BMC that is late
// may switch it off once more after that.
func (s *site) noteHealthy() {
	for rig.Sleep(s.life, poll) {
		s.mu.Lock()
		for name, h := range s.hosts {
			if s.away[name] == "" && !h.bmc.Power() {
				s.away[name] = "off"
			}
		}
		for name, boot := range s.away {
			h := s.hosts[name]
			n, err := s.cluster.Client().CoreV1().Nodes().Get(s.life, name, metav1.GetOptions{})
			if now := h.kubelet.BootID(); err == nil && now != "" && now != boot && n.Status.NodeInfo.BootID == now && scene.IsReady(n) && h.bmc.Power() {
				s.history.add(event{Kind: healthy, Host: name})
				delete(s.away, name)
			}
		}
		s.mu.Unlock()
	}
}

// isAway reports whether a host hangs, or has not come back since.
func (s *site) isAway(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away[name] != ""
}

// bastion is one host beside the cluster, with a daemon that is started again when it ends, as systemd does.
type bastion struct {
	name, dir string
	site      *site
	client    *fencedapi.Client

	mu     sync.Mutex
	wanted int // 1, less one for each fault that has killed it and is not over
	cmd    *exec.Cmd
}

// The times are short where a run waits for them, and the deadlines shorter than the longest faults, so that runs also give up and begin again.
const configuration = `instance: %[1]s
clusters:
  - {name: drill, kubeconfig: %[2]s/kubeconfig, mode: evaluate}
hosts: %[3]s/hosts.d
bmcNetworks: [10.77.0.0/24]
policies: %[3]s/policies.d
state:
  engine: etcd
  path: %[2]s/state.db
  etcd: {endpoints: [%[4]s], ca: %[5]s, cert: %[6]s, key: %[7]s}
audit: {path: %[2]s/audit.jsonl}
control: {socket: %[2]s/sock, group: "", pauseFile: %[2]s/paused}
metrics: {listen: ""}
sweep: {interval: 0s}
guards:
  quietPeriod: 0s
  minPowerInterval: 1s
  maxInFlight: 50
  maxInFlightPercent: 100
  maxInFlightTotal: 1000
  startsPerHour: 0
  maxFencesPerDay: 50
power:
  readTimeout: 2s
  offDeadline: 20s
  offReadSpacing: 1s
  onDeadline: 20s
  apiTimeout: 15s
  podsGoneTimeout: 1s
  nodeReadyTimeout: 2m
  sessionTimeout: 0s
  retryInterval: 1s
`

const policy = `apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: all}
spec:
  nodeSelector: {matchLabels: {drill/pool: all}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 1s}]
  limit: 100%
  strategy: PowerCycle
`

// newBastion writes the files of a bastion and starts its daemon.
func (s *site) newBastion(name string) (*bastion, error) {
	b := &bastion{name: name, dir: filepath.Join(s.dir, name), site: s}
	b.client = fencedapi.New(filepath.Join(b.dir, "sock"))
	made, err := s.cluster.Kubeconfig(name) // a user of its own, so that the audit log tells them apart
	if err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.LoadFromFile(made)
	if err != nil {
		return nil, fmt.Errorf("read a kubeconfig: %w", err)
	}
	for _, c := range kubeconfig.Clusters {
		c.Server = "https://" + apiAddress()
	}
	var entries strings.Builder
	for _, h := range hostNames {
		fmt.Fprintf(&entries, "  - {node: %s, bmc: {address: \"ipmi://%s\", username: %s, passwordFile: %s/password, cipherSuites: [17]}}\n", h, s.hosts[h].bmc.Addr(), user, s.dir)
	}
	err = rig.WriteFiles(s.dir, map[string]string{
		"password": password + "\n", "hosts.d/hosts.yaml": "hosts:\n" + entries.String(), "policies.d/all.yaml": policy,
		name + "/fenced.yaml": fmt.Sprintf(configuration, name, b.dir, s.dir, strings.Join(s.etcd.Endpoints(), ", "), s.etcd.CA(), s.etcd.Cert(), s.etcd.Key()),
	})
	if err == nil {
		err = clientcmd.WriteToFile(*kubeconfig, filepath.Join(b.dir, "kubeconfig"))
	}
	if err != nil {
		return nil, fmt.Errorf("write the files of %s: %w", name, err)
	}
	b.want(1)
	s.wg.Go(b.keep)
	return b, nil
}

// keep runs the daemon while it is wanted.
func (b *bastion) keep() {
	for b.site.life.Err() == nil {
		cmd, err := b.start()
		if err == nil && cmd != nil {
			_ = cmd.Wait() // its log says how it ended
		}
		rig.Sleep(b.site.life, 500*time.Millisecond)
	}
}

// start starts the daemon in the namespace of its bastion, if it is wanted.
func (b *bastion) start() (*exec.Cmd, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd = nil; b.wanted < 1 || b.site.life.Err() != nil {
		return nil, nil
	}
	log, err := os.OpenFile(filepath.Join(b.dir, "fenced.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(b.site.program, "--config", filepath.Join(b.dir, "fenced.yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := b.site.net.spaces[b.name].enter(cmd.Start); err != nil {
		return nil, err
	}
	b.cmd = cmd
	return cmd, nil
}

// want changes whether the daemon is to run. One that is not is killed with SIGKILL.
func (b *bastion) want(by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wanted += by; b.wanted < 1 && b.cmd != nil {
		_ = b.cmd.Process.Kill() // an error says only that it is gone already
	}
}

// signal sends a signal to the daemon, if it runs.
func (b *bastion) signal(s syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil {
		_ = b.cmd.Process.Signal(s) // an error says only that it is gone
	}
}

// logTail is the end of a daemon's log.
func (b *bastion) logTail(lines int) string {
	text, _ := os.ReadFile(filepath.Join(b.dir, "fenced.log")) // there is none before its first start
	return rig.LastLines(string(text), lines)
}
