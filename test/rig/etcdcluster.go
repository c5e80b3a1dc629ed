package rig

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	bin, err := Binaries(ctx, o.Progress)
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
		if err := writeEtcdPKI(c.dir.path); err != nil {
			return err
		}
	}
	for i := range c.opts.Members {
		m := &etcdMember{name: fmt.Sprint("m", i)}
		c.members = append(c.members, m)
		if m.client, err = reservePort(); err != nil {
			return err
		}
		if m.peer, err = reservePort(); err != nil {
			return err
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

func writeEtcdPKI(dir string) error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	if err := ca.writePKI(dir); err != nil {
		return err
	}
	user, err := ca.user("fenced", nil)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"client.crt": user.cert, "client.key": user.key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write the etcd client's keys: %w", err)
		}
	}
	return nil
}

func (c *EtcdCluster) args(m *etcdMember) []string {
	client, peer := c.url(m), "http://"+m.peer.address()
	var all []string
	for _, other := range c.members {
		all = append(all, other.name+"=http://"+other.peer.address())
	}
	args := []string{
		"--name=" + m.name, "--data-dir=" + filepath.Join(c.file(m.name), "data"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + strings.Join(all, ","),
		"--socket-reuse-port", "--log-level=warn",
		// The data is deleted at the end, and a killed process loses nothing that the kernel has.
		"--unsafe-no-fsync",
	}
	if c.opts.TLS {
		args = append(args, "--cert-file="+c.file("server.crt"), "--key-file="+c.file("server.key"),
			"--client-cert-auth", "--trusted-ca-file="+c.CA())
	}
	return args
}
