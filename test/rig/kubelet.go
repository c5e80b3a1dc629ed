package rig

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
)

// KubeletOptions describe one simulated host and the kubelet on it.
type KubeletOptions struct {
	NodeName   string
	SystemUUID string // as the host's firmware and BMC report it
	Address    string // InternalIP; 192.0.2.1 if empty
	ProviderID string
	// Annotations are what the controllers of the Machines write into a Node as soon as it registers: which
	// Machine is its.
	Annotations map[string]string
	// Labels are the --node-labels. The kubelet sets them when it creates the Node, and does not
	// change them on a Node that exists.
	Labels map[string]string
	// Power reports whether the host really has power, whatever its BMC reports. After an error
	// the host stays as it is.
	Power func(context.Context) (on bool, err error)
	// BootDelay is the time from power on to a running kubelet; 1 s if zero.
	BootDelay time.Duration
	// LeaseEvery is the time between two heartbeats; 1 s if zero.
	LeaseEvery time.Duration
	// RenewEvery is the time between two renewals of the Lease, if they are less frequent than the
	// updates of the status; LeaseEvery if zero.
	RenewEvery time.Duration
}

// Kubelet is a simulated host with its kubelet. Without power it does nothing and loses its state.
// With power it boots and behaves like a kubelet.
type Kubelet struct {
	opts   KubeletOptions
	client kubernetes.Interface

	mu     sync.Mutex
	zombie bool
	boot   *boot // nil while there is no power
	fails  int   // so many boots never come to the kubelet
}

const (
	powerPoll  = 100 * time.Millisecond
	neverBoots = 1000 * time.Hour
)

// NewKubelet creates a host; Run starts it. The client should come from
// ControlPlane.KubeletClient.
func NewKubelet(client kubernetes.Interface, o KubeletOptions) *Kubelet {
	if o.BootDelay == 0 {
		o.BootDelay = time.Second
	}
	if o.LeaseEvery == 0 {
		o.LeaseEvery = time.Second
	}
	o.Address = orElse(o.Address, "192.0.2.1")
	return &Kubelet{opts: o, client: client}
}

// Run follows the host's power until ctx ends, and returns when the last
// request of the kubelet has ended.
func (k *Kubelet) Run(ctx context.Context) error {
	if k.opts.Power == nil {
		return errors.New("run a simulated kubelet: no Power function")
	}
	tick := time.NewTicker(powerPoll)
	defer tick.Stop()
	defer k.powerOff()
	for {
		if on, err := k.opts.Power(ctx); err == nil {
			k.follow(ctx, on)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (k *Kubelet) follow(ctx context.Context, on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch on = on || k.zombie; {
	case on && k.boot == nil:
		o := k.opts
		if k.fails > 0 {
			k.fails--
			o.BootDelay = neverBoots
		}
		k.boot = startBoot(ctx, k.client, o)
	case !on && k.boot != nil:
		k.boot.stop()
		k.boot = nil
	}
}

func (k *Kubelet) powerOff() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.boot != nil {
		k.boot.stop()
		k.boot = nil
	}
}

// Hang hangs the host's kernel: the power stays on, and there are no more heartbeats. Only a loss of
// power ends that, and then the next boot is healthy. A host without power cannot hang.
func (k *Kubelet) Hang() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.boot != nil {
		k.boot.stop() // k.boot stays set, so the host does not boot while the power is on
	}
}

// FailBoots lets the next boots fail: the power comes on, and no kubelet.
func (k *Kubelet) FailBoots(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fails = n
}

// SetZombie makes the host ignore that its power is off, as with a BMC that
// reports a false Off, or that is another host's. Its heartbeats continue.
func (k *Kubelet) SetZombie(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.zombie = on
}

// Reinstall changes the Node name and the system UUID of the host from the next boot on. client must
// be that of a kubelet with that name.
func (k *Kubelet) Reinstall(client kubernetes.Interface, nodeName, systemUUID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.client, k.opts.NodeName, k.opts.SystemUUID = client, nodeName, systemUUID
}

// BootID returns the ID of the present boot; empty while there is no power.
func (k *Kubelet) BootID() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.boot == nil {
		return ""
	}
	return k.boot.bootID
}
