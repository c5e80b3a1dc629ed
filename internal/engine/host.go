package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

func asRefusal(err error) (*Refusal, bool) { return errors.AsType[*Refusal](err) }

// Sentence is the text of an error whose reason is shown beside it. A Refusal, wrapped
// or not, has that reason in its own text; here it is left out.
func Sentence(err error) string {
	text := err.Error()
	if r, ok := asRefusal(err); ok {
		text = strings.Replace(text, r.Error(), r.Message, 1)
	}
	return text
}

// fix notes in a target where its host is found, for the whole run. // I10
func (c *cluster) fix(t *remediate.Target, h bmc.Host) {
	t.Host, t.Address, t.Devices, t.Choice = h.Name, h.Address(), devicesOf(h), choiceOf(h)
	t.Secret = strings.Join(secretsOf(c.opt.Name, h), "\n")
}

// host finds the way to a target's power with its credentials, and refuses one
// that points elsewhere than when the run began. Errors are *Refusal.
func (c *cluster) host(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	if t.Address == "" { // nothing was fixed yet
		return c.newHost(ctx, t)
	}
	h, err := c.sameHost(ctx, t)
	if err != nil {
		return h, err
	}
	return withSecrets(ctx, h, c.credentials), nil
}

// sameHost is host without the credentials. // I10
func (c *cluster) sameHost(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	h, err := c.find(ctx, t)
	if err != nil {
		return h, err
	}
	if t.Address != "" && t.Address != h.Address() {
		return h, &Refusal{Reason: policy.InvalidHost,
			Message: fmt.Sprintf("the BMC address of %s changed from %s to %s during the run", h.Source, t.Address, h.Address())}
	}
	if t.Choice != "" && t.Choice != choiceOf(h) {
		return h, &Refusal{Reason: policy.InvalidHost,
			Message: fmt.Sprintf("what %s switches was changed in %s during the run", h.Address(), h.Source)}
	}
	if why := c.otherSecret(h, t); why != "" {
		return h, &Refusal{Reason: policy.InvalidHost, Message: why}
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

// newHost is host for what nothing was done to yet: no password goes where a
// BareMetalHost leads that nobody knows. // I10
func (c *cluster) newHost(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	h, err := c.sameHost(ctx, t)
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

// find gives the administrator's entry for a target, else the BareMetalHost of
// its Machine, as they are now.
func (c *cluster) find(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	if t.Node != "" {
		h, found, err := c.e.opt.Hosts.Find(ctx, c.opt.Name, t.Node)
		if err != nil {
			return h, &Refusal{Reason: hostErrorReason(err, policy.InvalidHost), Message: Sentence(err)}
		}
		if found {
			return h, nil
		}
	}
	b := c.bareMetalHost(t)
	if b == nil {
		return bmc.Host{}, &Refusal{Reason: policy.NoHost,
			Message: fmt.Sprintf("no entry in hosts.d for Node %q and no BareMetalHost for Machine %q; add one", t.Node, t.Machine)}
	}
	return c.hostOf(b)
}

// hostOf is the way to a BareMetalHost's power, without its credentials.
func (c *cluster) hostOf(b *policy.Host) (bmc.Host, error) {
	ep, err := bmc.ParseEndpoint(b.Address)
	if err != nil {
		return bmc.Host{}, &Refusal{Reason: policy.InvalidHost, Message: "BareMetalHost " + b.Key() + ": " + err.Error()}
	}
	d := bmc.Device{
		Driver: bmc.Driver(ep.Protocol), Endpoint: ep, TLS: bmc.TLS{InsecureSkipVerify: b.DisableCertificateVerification},
		Secret: b.Namespace + "/" + b.CredentialsName, Networks: c.e.opt.Metal.Networks,
	}
	return bmc.Host{
		Name: c.opt.Name + "/" + b.Key(), IdentityMode: c.opt.IdentityMode, Source: "BareMetalHost " + b.Key(),
		Levels: []bmc.Level{{Devices: []bmc.Device{d}}},
	}, nil
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
