package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fenced/fenced/test/certs"

	"github.com/fenced/fenced/test/kube"
)

// Options are the options of a control plane. The zero value is usable.
type Options struct {
	// GracePeriod is how long after the last heartbeat the controller manager sets Ready=Unknown;
	// 4 s if zero. The kubelets renew every second.
	GracePeriod time.Duration
	// Progress receives the progress of a first build; io.Discard if nil.
	Progress io.Writer
	// CRDs are the sets to install; OpenShift and Metal3 if nil, none if empty.
	CRDs []CRDs
	// Bare leaves out the CRDs, the namespace and fenced's rights.
	Bare bool
	// NoManager leaves out the controller manager. Then only the caller writes the status of a
	// Node.
	NoManager bool
	// NodeRestriction is the admission plugin with which clusters keep a kubelet to what it may say about itself.
	NodeRestriction bool
	// AuditReads is a user whose reads the audit log has, too; empty for none.
	AuditReads string
	// StandIn starts what serves the API in place of etcd and kube-apiserver. What it deletes it writes to the audit log. A loop of
	// this package stands in for the controller manager then, and there is no RBAC. nil: the real programs.
	StandIn func(audit io.Writer) (API, error)
	// Assets are directories whose etcd, kube-apiserver and kube-controller-manager are used; see Programs.
	Assets []string
	// Dir is the directory in which the control plane makes its own one; the system's temporary
	// directory if empty.
	Dir string
	// pooled is set by a Pool: many control planes share the processors.
	pooled bool
}

// ControlPlane is a running etcd, kube-apiserver and kube-controller-manager, and a kube-scheduler
// after StartScheduler.
type ControlPlane struct {
	dir  workDir
	bin  map[string]string // the paths of the programs, by name
	opts Options
	ca   *certs.Authority
	loan *loan // nil unless a Pool lends it
	// standIn is nil for the real programs.
	standIn *standIn

	etcdPort, peerPort, apiPort, managerPort, schedulerPort *port

	mu                            sync.Mutex // guards the processes, which tests stop and start
	etcd, api, manager, scheduler *process

	client  *kube.Client
	dynamic dynamic.Interface
	mapper  *kube.Mapper
}

// Start brings up a control plane with the CRDs, the machine namespace and the
// rights of fenced. After an error everything is stopped, and the error has the end of the log of the
// program that did not start.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	c, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	return c.started(ctx, c.startServer, c.furnish)
}

// prepare fills in the options, and builds the programs if this was never done.
func prepare(ctx context.Context, o Options) (*ControlPlane, error) {
	if o.GracePeriod == 0 {
		o.GracePeriod = 4 * time.Second
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if _, err := definitions(o.CRDs); err != nil {
		return nil, err
	}
	if o.StandIn != nil {
		return &ControlPlane{opts: o}, nil
	}
	bin, err := Programs(ctx, o.Assets, o.Progress)
	if err != nil {
		return nil, err
	}
	return &ControlPlane{bin: bin, opts: o}, nil
}

// StartAll starts several control planes at the same time, for example a management API and a workload
// API, and returns them in the order of their options. Each has its own ports, directory and CA, so a
// certificate of one is invalid for another. After an error all are stopped.
func StartAll(ctx context.Context, options ...Options) ([]*ControlPlane, error) {
	return startAll(ctx, Start, options)
}

func startAll(ctx context.Context, start func(context.Context, Options) (*ControlPlane, error), options []Options) ([]*ControlPlane, error) {
	planes := make([]*ControlPlane, len(options))
	g, gctx := errgroup.WithContext(ctx)
	for i, o := range options {
		g.Go(func() (err error) {
			planes[i], err = start(gctx, o)
			return err
		})
	}
	err := g.Wait()
	if err == nil {
		return planes, nil
	}
	for _, c := range planes {
		if c != nil {
			c.Stop()
		}
	}
	return nil, err
}

// startTime bounds a start. A busy machine may take minutes; a start that takes longer hangs.
const startTime = 10 * time.Minute

// started takes the steps of a start, and ends the control plane after an error.
func (c *ControlPlane) started(ctx context.Context, steps ...func(context.Context) error) (*ControlPlane, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for _, step := range steps {
		if err := step(ctx); err != nil {
			logs := c.KeepLogs()
			c.end()
			return nil, fmt.Errorf("%w\nthe logs are kept in %s", err, logs)
		}
	}
	return c, nil
}

// startServer starts an API server with its etcd.
func (c *ControlPlane) startServer(ctx context.Context) error {
	if c.opts.StandIn != nil {
		return c.startStandIn()
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	return c.connect()
}

// furnish adds to an API server what the options ask for.
func (c *ControlPlane) furnish(ctx context.Context) error {
	if !c.opts.NoManager {
		if err := c.startManager(ctx); err != nil {
			return err
		}
	}
	if c.opts.Bare {
		return nil
	}
	if err := c.InstallCRDs(ctx, c.opts.CRDs...); err != nil {
		return err
	}
	if err := c.CreateNamespace(ctx, Namespace); err != nil {
		return err
	}
	if c.standIn != nil {
		return nil
	}
	return c.ApplyRBAC(ctx)
}

// writeFiles writes the files that the programs read, and reserves their ports.
func (c *ControlPlane) writeFiles() (err error) {
	if err := c.dir.make(c.opts.Dir, "fenced-rig-"); err != nil {
		return fmt.Errorf("make the control plane's directory: %w", err)
	}
	for _, p := range []**port{&c.etcdPort, &c.peerPort, &c.apiPort, &c.managerPort} {
		if *p, err = reservePort(); err != nil {
			return err
		}
	}
	if c.ca, err = certs.NewAuthority(); err != nil {
		return err
	}
	if err := writePKI(c.ca, c.dir.path); err != nil {
		return err
	}
	return c.writeAuditPolicy()
}

// connect makes the administrator's clients.
func (c *ControlPlane) connect() error {
	cfg, err := c.RESTConfig("rig", AdminGroup)
	if err != nil {
		return err
	}
	cfg.WarningHandler = rest.NoWarnings{} // of versions that are deprecated
	if c.client, err = kube.NewForConfig(cfg); err != nil {
		return fmt.Errorf("make the administrator's client: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return fmt.Errorf("make the administrator's dynamic client: %w", err)
	}
	c.mapper = kube.NewMapper(c.client)
	return nil
}

// URL is the address of the API server.
func (c *ControlPlane) URL() string {
	if c.standIn != nil {
		return c.standIn.URL()
	}
	return "https://" + c.apiPort.address()
}

// Dir holds the logs (etcd.log, kube-apiserver.log, kube-controller-manager.log, kube-scheduler.log,
// audit.log) until Stop.
func (c *ControlPlane) Dir() string { return c.dir.path }

// KeepLogs makes Stop keep the logs. It returns their directory.
func (c *ControlPlane) KeepLogs() string { return c.dir.keepLogs() }

// Client is the administrator's typed client.
func (c *ControlPlane) Client() *kube.Client { return c.client }

// Dynamic is the administrator's client for custom resources.
func (c *ControlPlane) Dynamic() dynamic.Interface { return c.dynamic }

// Stop ends the programs and removes their files, except logs that KeepLogs keeps; a control plane of a
// Pool goes back there. It may be called twice, and after a failed start.
func (c *ControlPlane) Stop() {
	if !c.giveBack() {
		c.end()
	}
}

func (c *ControlPlane) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range []*process{c.scheduler, c.manager, c.api, c.etcd} {
		p.kill()
	}
	c.standIn.end()
	for _, p := range []**port{&c.etcdPort, &c.peerPort, &c.apiPort, &c.managerPort, &c.schedulerPort} {
		(*p).release()
		*p = nil
	}
	c.dir.clear()
}

// Died returns the error of a program that ended by itself, nil if none did.
func (c *ControlPlane) Died() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, p := range []*process{c.etcd, c.api, c.manager, c.scheduler} {
		if p != nil {
			errs = append(errs, p.died())
		}
	}
	return errors.Join(errs...)
}

// run starts a program, and notes it as the one that runs.
func (c *ControlPlane) run(running **process, program string, args []string) (*process, error) {
	var env []string
	if c.opts.pooled {
		env = append(env, "GOMAXPROCS=1") // most of them wait; several processors cost each an eighth more, in idle threads that look for work
	}
	p, err := startProcess(c.dir.path, program, args, env...)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	*running = p
	return p, nil
}
