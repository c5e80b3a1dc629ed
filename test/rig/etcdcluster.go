package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fenced/fenced/test/certs"
)

// EtcdOptions are the options of an etcd cluster. The zero value is three members without TLS.
type EtcdOptions struct {
	Members int
	// TLS makes the members use certificates, and require them from clients.
	TLS bool
	// Progress receives the progress of a first build; io.Discard if nil.
	Progress io.Writer
	// Dir is the directory in which the cluster makes its own one; the system's temporary
	// directory if empty.
	Dir string
	// Places are where the members run; on loopback if empty.
	Places []Place
}

// Place is an address in a network namespace, and how to do something in there.
type Place struct {
	Address netip.Addr
	Enter   func(do func() error) error
}

// EtcdCluster is a running etcd cluster of several members, which can be killed,
// frozen and restarted one by one.
type EtcdCluster struct {
	dir     workDir
	bin     string
	opts    EtcdOptions
	members []*etcdMember
}

type etcdMember struct {
	name         string
	place        Place
	client, peer *port

	mu      sync.Mutex // guards process, which tests stop and start
	process *process
}

// StartEtcd brings up an etcd cluster that has a leader.
func StartEtcd(ctx context.Context, o EtcdOptions) (*EtcdCluster, error) {
	if o.Members == 0 {
		o.Members = 3
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	bin, err := etcd.cached(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	c := &EtcdCluster{bin: bin, opts: o}
	if err := c.start(ctx); err != nil {
		logs := c.KeepLogs()
		c.Stop()
		return nil, fmt.Errorf("%w\nthe logs are kept in %s", err, logs)
	}
	return c, nil
}

func (c *EtcdCluster) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := c.dir.make(c.opts.Dir, "fenced-etcd-"); err != nil {
		return fmt.Errorf("make the etcd cluster's directory: %w", err)
	}
	if c.opts.TLS {
		var also []net.IP
		for _, p := range c.opts.Places {
			also = append(also, p.Address.AsSlice())
		}
		if err := writeEtcdPKI(c.dir.path, also); err != nil {
			return err
		}
	}
	for i := range c.opts.Members {
		m := &etcdMember{name: fmt.Sprint("m", i), place: Place{netip.AddrFrom4([4]byte{127, 0, 0, 1}), func(do func() error) error { return do() }}}
		if len(c.opts.Places) > 0 {
			m.place = c.opts.Places[i]
		}
		c.members = append(c.members, m)
		for _, p := range []**port{&m.client, &m.peer} {
			if err := m.place.Enter(func() (err error) { *p, err = reservePortAt(m.place.Address); return err }); err != nil {
				return err
			}
		}
		if err := os.Mkdir(c.file(m.name), 0o700); err != nil {
			return fmt.Errorf("make the directory of %s: %w", m.name, err)
		}
	}
	for i := range c.members { // all at the same time: one member alone elects no leader
		if err := c.Restart(i); err != nil {
			return err
		}
	}
	return c.awaitLeader(ctx)
}

func writeEtcdPKI(dir string, also []net.IP) error {
	ca, err := certs.NewAuthority()
	if err != nil {
		return err
	}
	if err := writePKI(ca, dir, also...); err != nil {
		return err
	}
	user, err := ca.User("fenced", nil)
	if err != nil {
		return err
	}
	return WriteFiles(dir, map[string][]byte{"client.crt": user.Cert, "client.key": user.Key})
}

func (c *EtcdCluster) args(m *etcdMember) []string {
	var all []string
	for _, other := range c.members {
		all = append(all, other.name+"=http://"+other.peer.address())
	}
	args := etcdArgs(filepath.Join(c.file(m.name), "data"), c.url(m), "http://"+m.peer.address(),
		"--name="+m.name, "--initial-cluster="+strings.Join(all, ","))
	if c.opts.TLS {
		args = append(args, "--cert-file="+c.file("server.crt"), "--key-file="+c.file("server.key"),
			"--client-cert-auth", "--trusted-ca-file="+c.CA())
	}
	return args
}

func etcdArgs(data, client, peer string, more ...string) []string {
	return append(more, "--data-dir="+data, "--socket-reuse-port", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		// The data is deleted at the end, and a killed process loses nothing that the kernel has.
		"--unsafe-no-fsync")
}

var errMemberDown = errors.New("the etcd member is not running")

// Kill ends a member as a crash would; Restart brings it back with its data.
func (c *EtcdCluster) Kill(i int) {
	m := c.members[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process.kill()
	m.process = nil
}

// Restart starts a member with its port and its data. It does not wait until the member is ready.
func (c *EtcdCluster) Restart(i int) error {
	m := c.members[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.place.Enter(func() error {
		p, err := startProcess(c.file(m.name), c.bin, c.args(m))
		if err == nil {
			m.process = p
		}
		return err
	})
}

// Freeze stops a member. For the others and for its clients this is a partition with open connections.
// Thaw ends it.
func (c *EtcdCluster) Freeze(i int) error { return c.with(i, (*process).freeze) }

// Thaw continues a frozen member.
func (c *EtcdCluster) Thaw(i int) error { return c.with(i, (*process).thaw) }

func (c *EtcdCluster) with(i int, do func(*process) error) error {
	m := c.members[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return errMemberDown
	}
	return do(m.process)
}

// Leader returns the number of the leader, as the members report it.
func (c *EtcdCluster) Leader(ctx context.Context) (int, error) {
	conf := clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: time.Second, Logger: zap.NewNop()}
	if c.opts.TLS {
		secure, err := transport.TLSInfo{CertFile: c.Cert(), KeyFile: c.Key(), TrustedCAFile: c.CA()}.ClientConfig()
		if err != nil {
			return 0, fmt.Errorf("read the etcd client's certificate: %w", err)
		}
		conf.TLS = secure
	}
	client, err := clientv3.New(conf)
	if err != nil {
		return 0, fmt.Errorf("make an etcd client: %w", err)
	}
	defer client.Close()
	for i, m := range c.members {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		status, err := client.Status(asking, c.url(m))
		cancel()
		if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
			return i, nil
		}
	}
	return 0, errors.Join(errors.New("no etcd member leads"), c.Died())
}

func (c *EtcdCluster) awaitLeader(ctx context.Context) error {
	for {
		_, err := c.Leader(ctx)
		if err == nil || c.Died() != nil {
			return err
		}
		if !Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("wait for an etcd leader: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// Endpoints are the URLs for clients.
func (c *EtcdCluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, c.url(m))
	}
	return all
}

func (c *EtcdCluster) url(m *etcdMember) string {
	if c.opts.TLS {
		return "https://" + m.client.address()
	}
	return "http://" + m.client.address()
}

// CA is the file with the CA certificate of a cluster with TLS.
func (c *EtcdCluster) CA() string { return c.file("ca.crt") }

func (c *EtcdCluster) Cert() string { return c.file("client.crt") }

// Key is the file with the key of that certificate.
func (c *EtcdCluster) Key() string { return c.file("client.key") }

func (c *EtcdCluster) file(name string) string { return filepath.Join(c.dir.path, name) }

// Died returns the error of a member that ended by itself, nil if none did.
func (c *EtcdCluster) Died() error {
	var errs []error
	for _, m := range c.members {
		m.mu.Lock()
		if m.process != nil {
			errs = append(errs, m.process.died())
		}
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// KeepLogs makes Stop keep the logs of the members. It returns their directory.
func (c *EtcdCluster) KeepLogs() string { return c.dir.keepLogs() }

// Stop ends all members and removes their files, except logs that KeepLogs keeps. It may be called
// twice.
func (c *EtcdCluster) Stop() {
	for i, m := range c.members {
		c.Kill(i)
		m.client.release()
		m.peer.release()
		m.client, m.peer = nil, nil
	}
	c.members = nil
	c.dir.clear()
}
