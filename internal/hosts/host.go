package hosts

import (
	"context"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// FixTarget notes in a target where its host is found, for the whole run. // I10
func (c *Cluster) FixTarget(t *remediate.Target, h bmc.Host) {
	t.Host, t.Address, t.Devices, t.Choice = h.Name, h.Address(), devicesOf(h), choiceOf(h)
	t.Secret = strings.Join(secretsOf(c.opt.Name, h), "\n")
}

// Find finds the way to a target's power with its credentials, and refuses one
// that points elsewhere than when the run began. Errors are *Refusal.
func (c *Cluster) Find(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	if t.Address == "" { // nothing was fixed yet
		return c.FindNew(ctx, t)
	}
	h, err := c.FindBare(ctx, t)
	if err != nil {
		return h, err
	}
	return withSecrets(ctx, h, c.credentials), nil
}

// FindBare is Find without the credentials. // I10
func (c *Cluster) FindBare(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	h, err := c.Entry(ctx, t)
	if err != nil {
		return h, err
	}
	if t.Address != "" && t.Address != h.Address() {
		return h, &reason.Refusal{Reason: reason.InvalidHost,
			Message: fmt.Sprintf("the BMC address of %s changed from %s to %s during the run", h.Source, t.Address, h.Address())}
	}
	if t.Choice != "" && t.Choice != choiceOf(h) {
		return h, &reason.Refusal{Reason: reason.InvalidHost,
			Message: fmt.Sprintf("what %s switches was changed in %s during the run", h.Address(), h.Source)}
	}
	if why := c.otherSecret(h, t); why != "" {
		return h, &reason.Refusal{Reason: reason.InvalidHost, Message: why}
	}
	if t.Choice != "" { // bmcNetworks may have been narrowed since: the host is to be brought back all the same
		for _, l := range h.Levels {
			for i, d := range l.Devices {
				if d.Networks.RefuseHost(d.Endpoint.Host) != "" {
					l.Devices[i].Networks = nil
				}
			}
		}
	}
	return h, nil
}

// FindNew is Find for what nothing was done to yet: no password goes where a
// BareMetalHost leads that nobody knows. // I10
func (c *Cluster) FindNew(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	h, err := c.FindBare(ctx, t)
	if err != nil {
		return h, err
	}
	if r := c.withheld(h, t); r != nil {
		return h, r
	}
	h = withSecrets(ctx, h, c.credentials)
	if r := c.otherAccount(ctx, h, t); r != nil {
		return h, r
	}
	return h, nil
}

// Entry gives the administrator's entry for a target, else the BareMetalHost of
// its Machine, as they are now.
func (c *Cluster) Entry(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	if t.Node != "" {
		h, found, err := c.hosts.opt.Inventory.Find(ctx, c.opt.Name, t.Node)
		if err != nil {
			return h, &reason.Refusal{Reason: hostErrorReason(err, reason.InvalidHost), Message: reason.Sentence(err)}
		}
		if found {
			return c.withEnrolled(h), nil
		}
	}
	b := c.bareMetalHost(t)
	if b == nil {
		return bmc.Host{}, &reason.Refusal{Reason: reason.NoHost,
			Message: fmt.Sprintf("no entry in hosts.d for Node %q and no BareMetalHost for Machine %q; add one", t.Node, t.Machine)}
	}
	h, err := c.hostOf(b)
	if err != nil {
		return h, err
	}
	return c.withEnrolled(h), nil
}

// hostOf is the way to a BareMetalHost's power, without its credentials.
func (c *Cluster) hostOf(b *policy.Host) (bmc.Host, error) {
	ep, err := bmc.ParseEndpoint(b.Address)
	if err != nil {
		return bmc.Host{}, &reason.Refusal{Reason: reason.InvalidHost, Message: "BareMetalHost " + b.Key() + ": " + err.Error()}
	}
	d := bmc.Device{
		Driver: bmc.Driver(ep.Protocol), Endpoint: ep, TLS: bmc.TLS{InsecureSkipVerify: b.DisableCertificateVerification},
		Secret: b.Namespace + "/" + b.CredentialsName, Networks: c.hosts.opt.Metal.Networks,
	}
	return bmc.Host{
		Name: c.opt.Name + "/" + b.Key(), IdentityMode: c.opt.IdentityMode, Source: "BareMetalHost " + b.Key(),
		Levels: []bmc.Level{{Devices: []bmc.Device{d}}},
	}, nil
}

// ReasonOf is the code of a host that cannot be used.
func ReasonOf(err error) reason.Code {
	return hostErrorReason(err, reason.OfBMC(string(bmc.KindOf(err))))
}

func hostErrorReason(err error, fallback reason.Code) reason.Code {
	if r, ok := reason.AsRefusal(err); ok {
		return r.Reason
	}
	return fallback
}

// bareMetalHost finds the target's BareMetalHost in the view.
func (c *Cluster) bareMetalHost(t remediate.Target) *policy.Host {
	ns, name, _ := strings.Cut(t.BareMetalHost, "/")
	return c.opt.View.BareMetalHost(ns, name)
}
