package rig

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

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
	p, err := startProcess(c.file(m.name), filepath.Join(c.bin, "etcd"), c.args(m))
	if err != nil {
		return err
	}
	m.process = p
	return nil
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
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for an etcd leader: %w", errors.Join(ctx.Err(), err))
		case <-time.After(100 * time.Millisecond):
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

// Cert is the file with the certificate for clients.
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
