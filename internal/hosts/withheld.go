package hosts

import (
	"cmp"
	"context"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// MetalRules is what the administrator lets a BareMetalHost say about its BMC. Whoever
// may write one need not be trusted with the password that is sent there. // I10
type MetalRules struct {
	// Networks are where its BMC may be; nil: anywhere.
	Networks *bmc.Networks
	// PlainHTTP lets it be asked over http, Unverified without a look at its certificate.
	PlainHTTP, Unverified bool
}

// ofMetal says whether a target's way is that of its BareMetalHost.
func (c *Cluster) ofMetal(h bmc.Host, t remediate.Target) bool {
	return t.BareMetalHost != "" && h.Name == c.opt.Name+"/"+t.BareMetalHost
}

// withheld says why no password is sent to the BMC that a BareMetalHost names; nil when
// it may be, and for an entry of hosts.d, which is the administrator's own. // I10
func (c *Cluster) withheld(h bmc.Host, t remediate.Target) *reason.Refusal {
	if !c.ofMetal(h, t) {
		return nil
	}
	return cmp.Or(c.misplaced(h), c.pointedElsewhere(h, t), c.unknown(h, t))
}

// misplaced refuses what only the configuration can allow, and no enrolment.
func (c *Cluster) misplaced(h bmc.Host) *reason.Refusal {
	rules := c.hosts.opt.Metal
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			why := rules.Networks.RefuseHost(d.Endpoint.Host)
			switch {
			case why != "":
				why += ": allow it with bmcNetworks in fenced.yaml"
			case d.Endpoint.Plain && !rules.PlainHTTP:
				why = "the password would go in the clear: use https, or set bareMetalHosts.plainHTTP in fenced.yaml"
			case d.Endpoint.Protocol == bmc.ProtocolRedfish && d.TLS.InsecureSkipVerify && !rules.Unverified:
				why = "it wants no certificate verified, so anybody could be sent the password:" +
					" write the host into hosts.d with tls.ca or tls.pinSHA256, or set bareMetalHosts.unverified in fenced.yaml"
			}
			if why != "" {
				return &reason.Refusal{Reason: reason.InvalidHost, Message: h.Source + ", " + d.String() + ": " + why}
			}
		}
	}
	return nil
}

// unknown refuses a BareMetalHost that may be anybody's, made to be sent another host's
// password: it leads where another does, or it names another's Secret and was neither
// pinned nor enrolled with that.
func (c *Cluster) unknown(h bmc.Host, t remediate.Target) *reason.Refusal {
	all := names(c.opt.Name, t.Node, t.BareMetalHost)
	if !c.hosts.index.any([]string{h.Name}, anyHost) {
		return &reason.Refusal{Reason: reason.NotSynced, Message: h.Source + " has just gone"}
	}
	if why := c.hosts.twin(all); why != "" {
		return &reason.Refusal{Reason: reason.DuplicateHost, Message: why}
	}
	secrets := secretsOf(c.opt.Name, h)
	why := c.hosts.secretShared(all, secrets)
	if p, _, _ := c.hosts.pins.get(h.Name); why == "" || c.hosts.index.any(all, c.hosts.pinned) && (p.Secret == "" || p.Secret == strings.Join(secrets, "\n")) {
		return nil
	}
	return &reason.Refusal{Reason: reason.SecretShared, Message: why + ", and nobody has vouched for its BMC at " + h.Address() +
		": give it a Secret of its own, or look at that address and then enroll it (fencectl bmc enroll)"}
}

// otherSecret says why a run does not go on with the Secret that its BareMetalHost names by
// now: another's could be meant. "" when it may. // I10
func (c *Cluster) otherSecret(h bmc.Host, t remediate.Target) string {
	secrets := secretsOf(c.opt.Name, h)
	if !c.ofMetal(h, t) || t.Secret == "" || t.Secret == strings.Join(secrets, "\n") {
		return ""
	}
	why := c.hosts.secretShared(names(c.opt.Name, t.Node, t.BareMetalHost), secrets)
	if why == "" {
		return ""
	}
	return "the Secret of " + h.Source + " was changed during the run: " + why + "; name the former one again, or one of its own"
}

// otherAccount refuses a BareMetalHost that nobody knows, with its credentials, at the BMC
// of one that is known, beside whose part it names another: with another password it would
// lock the account of the other.
func (c *Cluster) otherAccount(ctx context.Context, h bmc.Host, t remediate.Target) *reason.Refusal {
	all := names(c.opt.Name, t.Node, t.BareMetalHost)
	if !c.ofMetal(h, t) || c.hosts.index.any(all, c.hosts.pinned) {
		return nil
	}
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			if d.Unusable != nil { // nothing is sent without an account
				continue
			}
			for _, o := range c.hosts.index.beside(d.Service(), all, c.hosts.known) {
				if !c.sameAccount(ctx, d, o) {
					return &reason.Refusal{Reason: reason.BMCShared,
						Message: h.Source + " has another account at " + d.String() + " than " + o.name + " (" + o.source + "), and nobody has vouched for it:" +
							" write the same account into its Secret, or enroll it (fencectl bmc enroll)"}
				}
			}
		}
	}
	return nil
}

// sameAccount says whether a device has the account that another host has at the same BMC.
func (c *Cluster) sameAccount(ctx context.Context, d bmc.Device, o indexed) bool {
	h := o.way
	cluster, node, _ := strings.Cut(o.name, "/")
	if o.listed {
		h, _, _ = c.hosts.opt.Inventory.Find(ctx, cluster, node)
	}
	of := c.hosts.clusters[cluster]
	if of == nil {
		return false
	}
	for _, l := range withSecrets(ctx, h, of.rememberedCredentials).Levels {
		for _, other := range l.Devices {
			if other.Service() == d.Service() && (other.Username != d.Username || !other.Password.Equal(d.Password)) {
				return false
			}
		}
	}
	return true
}
