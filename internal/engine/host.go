package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

func asRefusal(err error) (*Refusal, bool) { return errors.AsType[*Refusal](err) }

// host finds the way to a target's power: the administrator's entry, else the
// BareMetalHost of its Machine. Errors are *Refusal. // I10
func (c *cluster) host(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	if t.Node != "" {
		h, found, err := c.e.opt.Hosts.Find(ctx, c.opt.Name, t.Node)
		if err != nil {
			return h, &Refusal{Reason: hostErrorReason(err, policy.InvalidHost), Message: err.Error()}
		}
		if found {
			return c.sameAddress(c.withSecrets(ctx, h), t)
		}
	}
	b := c.bareMetalHost(t)
	if b == nil {
		return bmc.Host{}, &Refusal{Reason: policy.NoHost,
			Message: fmt.Sprintf("no entry in hosts.d for Node %q and no BareMetalHost for Machine %q; add one", t.Node, t.Machine)}
	}
	ep, err := bmc.ParseEndpoint(b.Address)
	if err != nil {
		return bmc.Host{}, &Refusal{Reason: policy.InvalidHost, Message: "BareMetalHost " + b.Key() + ": " + err.Error()}
	}
	d := bmc.Device{
		Driver: bmc.Driver(ep.Protocol), Endpoint: ep, TLS: bmc.TLS{InsecureSkipVerify: b.DisableCertificateVerification},
		Secret: b.Namespace + "/" + b.CredentialsName,
	}
	return c.sameAddress(c.withSecrets(ctx, bmc.Host{
		Name: c.opt.Name + "/" + b.Key(), IdentityMode: c.opt.IdentityMode, Source: "BareMetalHost " + b.Key(),
		Levels: []bmc.Level{{Devices: []bmc.Device{d}}},
	}), t)
}

// sameAddress refuses a host that points elsewhere than when the run began.
func (c *cluster) sameAddress(h bmc.Host, t remediate.Target) (bmc.Host, error) {
	if t.Address != "" && t.Address != h.Address() {
		return h, &Refusal{Reason: policy.InvalidHost,
			Message: fmt.Sprintf("the BMC address of %s changed from %s to %s during the run", h.Source, t.Address, h.Address())}
	}
	return h, nil
}

// withSecrets reads users and passwords from the Secrets that devices name. A
// device whose Secret cannot be read is Unusable; the others serve without it.
func (c *cluster) withSecrets(ctx context.Context, h bmc.Host) bmc.Host {
	levels := make([]bmc.Level, len(h.Levels))
	for i, l := range h.Levels {
		levels[i].Devices = slices.Clone(l.Devices)
		for j := range levels[i].Devices {
			if d := &levels[i].Devices[j]; d.Secret != "" && d.Password.Empty() {
				c.withSecret(ctx, h.Source, d)
			}
		}
	}
	h.Levels = levels
	return h
}

// withSecret reads one device's user and password.
func (c *cluster) withSecret(ctx context.Context, source string, d *bmc.Device) {
	ns, name, _ := strings.Cut(d.Secret, "/")
	if ns == "" || name == "" {
		d.Unusable = &Refusal{Reason: policy.SecretMissing, Message: source + " names no Secret with its BMC's credentials"}
		return
	}
	user, password, err := c.opt.Kube.Credentials(ctx, ns, name)
	if err != nil {
		d.Unusable = &Refusal{Reason: hostErrorReason(err, policy.SecretMissing), Message: source + ": " + err.Error()}
		return
	}
	d.Username, d.Password = user, password
}

func hostErrorReason(err error, fallback policy.Reason) policy.Reason {
	if r, ok := asRefusal(err); ok {
		return r.Reason
	}
	return fallback
}

// bareMetalHost finds the target's BareMetalHost in the view.
func (c *cluster) bareMetalHost(t remediate.Target) *policy.Host {
	ns, name, _ := strings.Cut(t.BareMetalHost, "/")
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Host(ns, name)
}

// pin is the UUID an earlier match stored for this host at this address.
func (c *cluster) pin(ctx context.Context, h bmc.Host) string {
	p, err := state.LoadPin(ctx, c.e.opt.Store, h.Name)
	if err != nil || p.Address != h.Address() {
		return ""
	}
	return p.SystemUUID
}

// storePin remembers a match of Node and BMC, for a later run without a Node.
// A failure costs only that.
func (c *cluster) storePin(ctx context.Context, r remediate.Run) {
	if r.Target.Host == "" || !bmc.UsableUUID(r.Target.SystemUUID) {
		return
	}
	p, err := state.LoadPin(ctx, c.e.opt.Store, r.Target.Host)
	if err == nil && p.SystemUUID == r.Target.SystemUUID && p.Address == r.Target.Address {
		return
	}
	p.Host, p.Address, p.SystemUUID, p.At = r.Target.Host, r.Target.Address, r.Target.SystemUUID, r.Started
	if _, err := state.SavePin(ctx, c.e.opt.Store, p); err != nil {
		c.emit(Event{Type: EventFailed, Node: r.Target.Node, Run: r.ID, Message: "store the identity pin: " + err.Error()})
	}
}
