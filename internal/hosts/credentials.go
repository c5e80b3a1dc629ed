package hosts

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// metalTrust decides whether a password may be sent where a BareMetalHost of one cluster leads.
// Whoever may write that object, or the Machine that names it, need not be trusted with the power
// of any host. An entry of hosts.d is the administrator's own, and is always trusted. // I10
type metalTrust struct {
	cluster string
	rules   MetalRules
	catalog *catalog
	// withAccounts returns a host of the catalog with its credentials; false if that is not
	// possible.
	withAccounts func(context.Context, *hostEntry) (bmc.Host, bool)
}

// isMetal reports whether the host of a target is its BareMetalHost, not an entry of hosts.d.
func (m *metalTrust) isMetal(h bmc.Host, t remediate.Target) bool {
	return t.BareMetalHost != "" && h.Name == m.cluster+"/"+t.BareMetalHost
}

// withheld returns why no password is sent to the BMC of a host, nil if it may be sent. // I10
func (m *metalTrust) withheld(h bmc.Host, t remediate.Target) *reason.Refusal {
	if !m.isMetal(h, t) {
		return nil
	}
	return cmp.Or(m.rules.refuse(h), m.moved(h, t), m.unknown(h, t))
}

// moved refuses a BareMetalHost whose BMC is not where it was pinned, and one that is not where
// the target's machine was pinned. // I10
func (m *metalTrust) moved(h bmc.Host, t remediate.Target) *reason.Refusal {
	p, found, err := m.catalog.pins.get(h.Name)
	switch {
	case err != nil:
		return &reason.Refusal{Reason: reason.InvalidHost, Message: "where " + h.Source + " was pinned cannot be read: " + err.Error()}
	case found && !pinnedHere(p, h):
		return addressChanged("%s was pinned at %s and is now at %s", h.Source, p.Address, h.Address())
	case found && bmc.UUIDsMatch(p.SystemUUID, t.SystemUUID):
		return nil
	case found && !bmc.UsableUUID(t.SystemUUID) && p.Node != "" && t.Node != "" && p.Node != t.Node:
		return addressChanged("%s was pinned for Node %s, and nothing shows that %s runs there now", h.Source, p.Node, t.Node)
	}
	other, found := m.catalog.pins.underAnotherName(h, t.SystemUUID)
	if found {
		return addressChanged("the machine of Node %s was pinned at %s (%s) and is now said to be at %s (%s)",
			t.Node, other.Address, other.Host, h.Address(), h.Source)
	}
	if err := m.catalog.pins.unreadableError(); err != nil && bmc.UsableUUID(t.SystemUUID) {
		return &reason.Refusal{Reason: reason.InvalidHost, Message: "where machines were pinned cannot all be read: " + err.Error()}
	}
	return nil
}

func addressChanged(format string, args ...any) *reason.Refusal {
	return &reason.Refusal{Reason: reason.AddressChanged, Message: fmt.Sprintf(format, args...) + "; if that is right, enroll it again"}
}

// unknown refuses a BareMetalHost that may have been made to be sent another host's password: it
// leads where another host does, or it names another's Secret and was neither pinned nor enrolled
// with that.
func (m *metalTrust) unknown(h bmc.Host, t remediate.Target) *reason.Refusal {
	all := names(m.cluster, t)
	if m.catalog.index.get(h.Name) == nil {
		return &reason.Refusal{Reason: reason.NotSynced, Message: h.Source + " has just gone"}
	}
	if why := cmp.Or(m.catalog.duplicate(all), m.catalog.duplicateAt(&h, all)); why != "" {
		return &reason.Refusal{Reason: reason.DuplicateHost, Message: why}
	}
	secrets := secretsOf(m.cluster, &h)
	why := m.catalog.secretShared(all, secrets)
	if why == "" || m.isPinnedWith(h, all, secrets) {
		return nil
	}
	return &reason.Refusal{Reason: reason.SecretShared, Message: why + ", and nobody has enrolled its BMC at " + h.Address() +
		": give it a Secret of its own, or look at that address and then enroll it (fencectl bmc enroll)"}
}

// isPinnedWith reports whether one of the named hosts, which are one, is where it was pinned, and
// the host was not pinned with other Secrets.
func (m *metalTrust) isPinnedWith(h bmc.Host, names, secrets []string) bool {
	p, _, _ := m.catalog.pins.get(h.Name)
	return m.catalog.index.anyOf(names, m.catalog.isPinned) && (p.Secret == "" || p.Secret == strings.Join(secrets, "\n"))
}

// otherSecret returns why a run must not continue with the Secret that its BareMetalHost names
// now: it may be another host's. It is "" if the run may. // I10
func (m *metalTrust) otherSecret(h bmc.Host, t remediate.Target) string {
	secrets := secretsOf(m.cluster, &h)
	if !m.isMetal(h, t) || t.Secret == "" || t.Secret == strings.Join(secrets, "\n") {
		return ""
	}
	why := m.catalog.secretShared(names(m.cluster, t), secrets)
	switch {
	case m.catalog.index.get(h.Name) == nil: // nobody can say now whose Secret it is
		why = "the object has just gone"
	case why == "":
		return ""
	}
	return "the Secret of " + h.Source + " was changed during the run: " + why + "; name the former one again, or one of its own"
}

// otherAccount refuses an unknown BareMetalHost, with its credentials, that names a part of the
// BMC of a known host, and has another account there: wrong passwords would lock the known host's
// account.
func (m *metalTrust) otherAccount(ctx context.Context, h bmc.Host, t remediate.Target) *reason.Refusal {
	all := names(m.cluster, t)
	if !m.isMetal(h, t) || m.catalog.index.anyOf(all, m.catalog.isPinned) {
		return nil
	}
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			if d.Unusable != nil { // without an account nothing is sent
				continue
			}
			for _, o := range m.catalog.index.onService(d.Service(), all) {
				if m.catalog.isKnown(o) && !m.sameAccount(ctx, d, o) {
					return &reason.Refusal{Reason: reason.BMCShared,
						Message: h.Source + " has another account at " + d.String() + " than " + o.name + " (" + o.host.Source + "), and nobody has enrolled it:" +
							" write the same account into its Secret, or enroll it (fencectl bmc enroll)"}
				}
			}
		}
	}
	return nil
}

// sameAccount reports whether a device has the account that another host has at the same BMC.
func (m *metalTrust) sameAccount(ctx context.Context, d bmc.Device, o *hostEntry) bool {
	h, ok := m.withAccounts(ctx, o)
	if !ok {
		return false
	}
	for _, l := range h.Levels {
		for _, other := range l.Devices {
			if other.Service() == d.Service() && (other.Username != d.Username || !other.Password.Equal(d.Password)) {
				return false
			}
		}
	}
	return true
}

// MetalRules is what the administrator lets a BareMetalHost say about its BMC. Whoever may write
// one need not be trusted with the password that is sent there. // I10
type MetalRules struct {
	// Networks are where its BMC may be; nil: anywhere.
	Networks *bmc.Networks
	// PlainHTTP allows http. Unverified allows https without verification of the certificate.
	PlainHTTP, Unverified bool
}

// refuse refuses what only the configuration can allow, and no enrolment.
func (r MetalRules) refuse(h bmc.Host) *reason.Refusal {
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			why := r.Networks.RefuseHost(d.Endpoint.Host)
			switch {
			case why != "":
				why += ": allow it with bmcNetworks in fenced.yaml"
			case d.Endpoint.Plain && !r.PlainHTTP:
				why = "the password would go in the clear: use https, or set bareMetalHosts.plainHTTP in fenced.yaml"
			case d.Endpoint.Protocol == bmc.ProtocolRedfish && d.TLS.InsecureSkipVerify && !r.Unverified:
				why = "it disables the verification of the certificate, so the password could go to anybody:" +
					" write the host into hosts.d with tls.ca or tls.pinSHA256, or set bareMetalHosts.unverified in fenced.yaml"
			}
			if why != "" {
				return &reason.Refusal{Reason: reason.InvalidHost, Message: h.Source + ", " + d.String() + ": " + why}
			}
		}
	}
	return nil
}

const (
	credentialsAge = 10 * time.Minute // how old the credentials of a health check may be
	failureAge     = 2 * time.Minute  // how old the failure to read them may be
)

// secretCache keeps the credentials of one cluster's Secrets for health checks, which check
// thousands of hosts every minute. Runs read the Secrets without it.
type secretCache struct {
	source Secrets

	mu    sync.Mutex
	byKey map[string]cachedCredentials // by namespace/name
	room  int                          // with more than that, some are too old
}

type cachedCredentials struct {
	user     string
	password bmc.Secret
	err      error
	until    time.Time
}

// read reads a Secret from the cluster, and caches what it held.
func (s *secretCache) read(ctx context.Context, key string) (string, bmc.Secret, error) {
	ns, name, _ := strings.Cut(key, "/")
	user, password, err := s.source.Credentials(ctx, ns, name)
	if ctx.Err() != nil {
		return user, password, err
	}
	age := credentialsAge
	if err != nil {
		age = failureAge
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.byKey[key] = cachedCredentials{user, password, err, now.Add(age - spread(key, age/4))}
	if len(s.byKey) > s.room { // nobody may name most of them any more
		maps.DeleteFunc(s.byKey, func(_ string, c cachedCredentials) bool { return !now.Before(c.until) })
		s.room = roomFor(len(s.byKey))
	}
	return user, password, err
}

// recent returns what is cached, or reads the Secret if that is too old.
func (s *secretCache) recent(ctx context.Context, key string) (string, bmc.Secret, error) {
	s.mu.Lock()
	c, ok := s.byKey[key]
	s.mu.Unlock()
	if ok && time.Now().Before(c.until) {
		return c.user, c.password, c.err
	}
	return s.read(ctx, key)
}

// forget makes the next health check read a device's Secret again.
func (s *secretCache) forget(d bmc.Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byKey, d.Secret)
}

// spread is a part of most that differs from key to key, so that not all Secrets are read at the
// same time.
func spread(key string, most time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // a hash never fails
	return most * time.Duration(h.Sum32()%1024) / 1024
}

type readSecret func(ctx context.Context, key string) (string, bmc.Secret, error)

// withSecrets fills in users and passwords from the Secrets that the devices name. A device whose
// Secret cannot be read is Unusable; the others can be used without it.
func withSecrets(ctx context.Context, h bmc.Host, read readSecret) bmc.Host {
	needs := func(d bmc.Device) bool { return d.Secret != "" && d.Password.Empty() }
	if !slices.ContainsFunc(h.Levels, func(l bmc.Level) bool { return slices.ContainsFunc(l.Devices, needs) }) {
		return h
	}
	return withDevices(h, func(d *bmc.Device, _, _ int) {
		if needs(*d) {
			withSecret(ctx, h.Source, d, read)
		}
	})
}

// withDevices returns a host with copies of its devices, which are changed.
func withDevices(h bmc.Host, change func(d *bmc.Device, level, device int)) bmc.Host {
	levels := make([]bmc.Level, len(h.Levels))
	for i, l := range h.Levels {
		levels[i].Devices = slices.Clone(l.Devices)
		for j := range levels[i].Devices {
			change(&levels[i].Devices[j], i, j)
		}
	}
	h.Levels = levels
	return h
}

// withSecret fills in one device's user and password.
func withSecret(ctx context.Context, source string, d *bmc.Device, read readSecret) {
	if ns, name, _ := strings.Cut(d.Secret, "/"); ns == "" || name == "" {
		d.Unusable = &reason.Refusal{Reason: reason.SecretMissing, Message: source + " names no Secret with its BMC's credentials"}
		return
	}
	user, password, err := read(ctx, d.Secret)
	if err != nil {
		d.Unusable = &reason.Refusal{Reason: RefusalReason(err, reason.SecretMissing), Message: source + ": " + reason.Sentence(err)}
		return
	}
	d.Username, d.Password = user, password
}
