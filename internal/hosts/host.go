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

// FixTarget records in a target where its host is found, for the whole run. // I10
func (c *Cluster) FixTarget(t *remediate.Target, h bmc.Host) {
	t.Host, t.Address, t.Devices, t.Choice = h.Name, h.Address(), devicesOf(h), choiceOf(h)
	t.Secret = strings.Join(secretsOf(c.opt.Name, h), "\n")
}

// Find returns a target's host with its credentials. It refuses a host that leads elsewhere than
// when the run began. The error is a *reason.Refusal.
func (c *Cluster) Find(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	if t.Address == "" { // FixTarget was not called yet
		return c.FindNew(ctx, t)
	}
	h, err := c.FindBare(ctx, t)
	if err != nil {
		return h, err
	}
	return withSecrets(ctx, h, c.secrets.read), nil
}

// FindBare is Find without the credentials. // I10
func (c *Cluster) FindBare(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	h, err := c.Entry(ctx, t)
	if err != nil {
		return h, err
	}
	if t.Address != "" && t.Address != h.Address() {
		return h, &reason.Refusal{Reason: reason.AddressChanged,
			Message: fmt.Sprintf("the BMC address of %s changed from %s to %s during the run", h.Source, t.Address, h.Address())}
	}
	if t.Choice != "" && t.Choice != choiceOf(h) {
		return h, &reason.Refusal{Reason: reason.AddressChanged,
			Message: fmt.Sprintf("what %s switches was changed in %s during the run", h.Address(), h.Source)}
	}
	if why := c.metal.otherSecret(h, t); why != "" {
		return h, &reason.Refusal{Reason: reason.InvalidHost, Message: why}
	}
	if t.Choice != "" { // bmcNetworks may be narrower since, but the host must come back
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

// FindNew is Find for a target to which nothing was done yet. It sends no password where an
// unknown BareMetalHost leads. // I10
func (c *Cluster) FindNew(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	h, err := c.FindBare(ctx, t)
	if err != nil {
		return h, err
	}
	if r := c.metal.withheld(h, t); r != nil {
		return h, r
	}
	h = withSecrets(ctx, h, c.secrets.read)
	if r := c.metal.otherAccount(ctx, h, t); r != nil {
		return h, r
	}
	return h, nil
}

// Entry returns the administrator's entry for a target, or else the BareMetalHost of its Machine,
// as they are now.
func (c *Cluster) Entry(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	h, found, err := c.listed(ctx, t)
	if err != nil {
		return h, err
	}
	if found {
		return c.withEnrolled(h), nil
	}
	b := c.bareMetalHost(t)
	if b == nil {
		return bmc.Host{}, &reason.Refusal{Reason: reason.NoHost, Message: noHostText(t)}
	}
	if h, err = c.hostOf(b); err != nil {
		return h, err
	}
	return c.withEnrolled(h), nil
}

// listed returns the entry of hosts.d for a target's Node or its Machine. It refuses two entries:
// nothing says which of them is right. // I9
func (c *Cluster) listed(ctx context.Context, t remediate.Target) (entry bmc.Host, found bool, err error) {
	for _, of := range t.Names() {
		h, ok, err := c.hosts.listed.inventory().Find(ctx, c.opt.Name, of)
		switch {
		case err != nil:
			return h, false, &reason.Refusal{Reason: RefusalReason(err, reason.InvalidHost), Message: reason.Sentence(err)}
		case ok && found:
			return h, false, &reason.Refusal{Reason: reason.DuplicateHost, Message: fmt.Sprintf(
				"%s is the entry of Node %s, and %s that of its Machine %s: keep one of them", entry.Source, t.Node, h.Source, t.MachineKey())}
		case ok:
			entry, found = h, true
		}
	}
	return entry, found, nil
}

// hostOf makes a host of a BareMetalHost, without its credentials.
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

// withAccounts returns an indexed host of any cluster with recent credentials. It returns false if
// the host's cluster is not configured.
func (h *Hosts) withAccounts(ctx context.Context, e *hostEntry) (bmc.Host, bool) {
	cluster, of := bmc.EntryOf(e.name)
	found := e.host
	if e.listed {
		found, _, _ = h.listed.inventory().Find(ctx, cluster, of) // an unusable entry has no device to compare
	}
	c := h.clusters.Get(cluster)
	if c == nil {
		return bmc.Host{}, false
	}
	return withSecrets(ctx, found, c.secrets.recent), true
}

func noHostText(t remediate.Target) string {
	if t.Node == "" {
		return fmt.Sprintf("Machine %s has no Node, no entry in hosts.d, and names no BareMetalHost; add an entry with machine: %s", t.MachineKey(), t.MachineKey())
	}
	return fmt.Sprintf("no entry in hosts.d for Node %q and no BareMetalHost for Machine %q; add one", t.Node, t.Machine)
}

// bareMetalHost returns the target's BareMetalHost, nil if it has none.
func (c *Cluster) bareMetalHost(t remediate.Target) *policy.Host { return bareMetalHost(c.opt.View, t) }

func bareMetalHost(v View, t remediate.Target) *policy.Host {
	ns, name, _ := strings.Cut(t.BareMetalHost, "/")
	return v.BareMetalHost(ns, name)
}

// names are the names under which the index has a host. A Node or a Machine may have an entry of
// hosts.d as well as a BareMetalHost.
func names(cluster string, t remediate.Target) (list []string) {
	if t.Node != "" {
		list = append(list, cluster+"/"+t.Node)
	}
	if machine := t.MachineKey(); machine != "" {
		list = append(list, bmc.EntryName(cluster, machine))
	}
	if t.BareMetalHost != "" {
		list = append(list, cluster+"/"+t.BareMetalHost)
	}
	return list
}

// ReasonOf is the reason code of an error with a host.
func ReasonOf(err error) reason.Code {
	return RefusalReason(err, reason.OfBMC(string(bmc.KindOf(err))))
}

// RefusalReason is the reason code if fenced itself refuses a host or a power level, else fallback.
func RefusalReason(err error, fallback reason.Code) reason.Code {
	if r, ok := reason.AsRefusal(err); ok {
		return r.Reason
	}
	return fallback
}
