package state

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/remediate"
)

// Hold stops the fencing of one Node or Machine until it expires or a person releases it. A person
// orders a hold. fenced itself creates one, the quarantine, for a host that it has fenced
// too often.
type Hold struct {
	Cluster string `json:"cluster"`
	// Node is the name of the Node, or the "namespace/name" of a Machine.
	Node    string `json:"node"`
	Version uint64 `json:"-"`

	By     string    `json:"by"` // a person, or "fenced"
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // zero: until it is released
	// Quarantine is true if fenced created the hold. A quarantine does not stop the
	// orders of people. // I15
	Quarantine bool `json:"quarantine,omitempty"`

	// A person released the hold. The record stays for a while, because the runs before
	// the release no longer count.
	ReleasedBy     string    `json:"releasedBy,omitempty"`
	ReleasedReason string    `json:"releasedReason,omitempty"`
	ReleasedAt     time.Time `json:"releasedAt,omitzero"`
}

// Key returns the key of the record. The quarantine of a Node and a person's hold of the
// same Node have different keys, so neither replaces or ends the other.
func (h Hold) Key() string {
	of := h.Node
	if strings.Contains(of, "/") {
		of = "machine/" + of // otherwise Machine n/quarantine would have the key of Node n's quarantine
	}
	if h.Quarantine {
		return h.Cluster + "/" + of + "/quarantine"
	}
	return h.Cluster + "/" + of
}

// Active returns whether the hold is in force at that time.
func (h Hold) Active(now time.Time) bool {
	return h.ReleasedBy == "" && (h.Until.IsZero() || now.Before(h.Until))
}

// Ended returns the time when the hold ends or ended. It returns the zero time for a hold
// without an end that nobody has released.
func (h Hold) Ended() time.Time {
	if h.ReleasedBy != "" {
		return h.ReleasedAt
	}
	return h.Until
}

// Holds are the records of holds, also of those that have ended. A Node has at most one hold and
// one quarantine: a new one replaces the old one.
var Holds = RecordType[Hold]{
	kind: KindHold, key: Hold.Key, version: func(h *Hold) *uint64 { return &h.Version },
	name: func(h Hold) string { return "the hold of " + h.Key() },
}

// Freeze records that a host was alive while its BMC reported Off. Until a person releases
// the host, fenced powers nothing off there. Each run that notices such a host has one
// Freeze. A released Freeze stays, with its release. // I5
type Freeze struct {
	RunID   string `json:"runID"`
	Version uint64 `json:"-"`

	Host    string `json:"host"` // bmc.Host.Name
	Cluster string `json:"cluster"`
	Node    string `json:"node,omitempty"`
	Devices string `json:"devices,omitempty"` // as in Pin
	// Class is the model and firmware of the BMC that falsely reported Off. It is empty
	// if that is unknown, or if an outlet reported Off.
	Class  string    `json:"class,omitempty"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`

	ReleasedBy     string    `json:"releasedBy,omitempty"`
	ReleasedReason string    `json:"releasedReason,omitempty"`
	ReleasedAt     time.Time `json:"releasedAt,omitzero"`
}

// Active returns whether nobody has released the host yet.
func (f Freeze) Active() bool { return f.ReleasedBy == "" }

// Freezes are the records of freezes, also of released ones.
var Freezes = RecordType[Freeze]{
	kind: KindFreeze, key: func(f Freeze) string { return f.RunID }, version: func(f *Freeze) *uint64 { return &f.Version },
	name:  func(f Freeze) string { return "the freeze of " + f.Host + " by run " + f.RunID },
	lasts: Freeze.Active, // until a person releases the host // I5
}

// AllClusters is the cluster name of the record that pauses all clusters.
const AllClusters = ""

// allClustersKey is the key of AllClusters, because a key must not be empty. No cluster may
// have this name.
const allClustersKey = "*"

// Cluster holds the orders of people for a whole cluster. The zero value is neither armed
// nor paused; it also stands for a record that was lost.
type Cluster struct {
	Name    string `json:"name"`
	Version uint64 `json:"-"`

	Armed       bool      `json:"armed,omitempty"`
	ArmedBy     string    `json:"armedBy,omitempty"`
	ArmedReason string    `json:"armedReason,omitempty"`
	ArmedAt     time.Time `json:"armedAt,omitzero"`

	Paused       bool      `json:"paused,omitempty"`
	PausedBy     string    `json:"pausedBy,omitempty"`
	PausedReason string    `json:"pausedReason,omitempty"`
	PausedAt     time.Time `json:"pausedAt,omitzero"`
	PausedUntil  time.Time `json:"pausedUntil,omitzero"` // zero: until it is resumed
	// ResumedAt is when people ended a pause. A quiet period starts then.
	ResumedAt time.Time `json:"resumedAt,omitzero"`

	// Scope is the scope of the configuration when the daemon last saw the whole cluster.
	Scope Scope `json:"scope,omitzero"`
}

// Scope is the part of a configuration that says what the daemon may act on. A start with
// a larger scope begins with a quiet period. // I18
type Scope struct {
	Mode   string            `json:"mode"`
	Checks map[string]string `json:"checks,omitempty"` // name of a check in policies.d -> digest of what it selects
	// Requests is what the configuration allows remediation requests beyond the default.
	Requests []string `json:"requests,omitempty"`
}

// Key returns the key of the record.
func (c Cluster) Key() string {
	if c.Name == AllClusters {
		return allClustersKey
	}
	return c.Name
}

// Clusters are the records of clusters, and the one of AllClusters.
var Clusters = RecordType[Cluster]{
	kind: KindCluster, key: Cluster.Key, version: func(c *Cluster) *uint64 { return &c.Version },
	name: func(c Cluster) string {
		if c.Name == AllClusters {
			return "the record of all clusters"
		}
		return fmt.Sprintf("cluster %q", c.Name)
	},
	check: func(c Cluster) error {
		if c.Name == allClustersKey {
			return errors.New("the name is reserved")
		}
		return nil
	},
	lasts: func(Cluster) bool { return true }, // a pause, and what was armed // I23
}

// Pin is the identity that a host and its BMC have proven. From then on, a BMC at another
// address or with another UUID is not the BMC of that host. // I10
type Pin struct {
	Host    string `json:"host"` // bmc.Host.Name
	Version uint64 `json:"-"`
	Node    string `json:"node,omitempty"` // the Node on the host; empty in older records
	// MachineUID is that of the Machine on the host of an entry for a Machine: another
	// Machine of the same name may be on another host. Empty for all other hosts.
	MachineUID string `json:"machineUID,omitempty"`

	Address string `json:"address"`
	// Devices names every device that can switch the host, one per line (bmc.Host.Keys).
	// It is empty in older records, which have only Address.
	Devices string `json:"devices,omitempty"`
	// Choice has for each device a digest of the parameters that choose the machine, one
	// per line (bmc.Device.Fingerprint). It is empty in older records.
	Choice string `json:"choice,omitempty"`
	// Secret names the Secrets of the devices, one per line. It is empty in older records,
	// and if no device has a Secret.
	Secret     string    `json:"secret,omitempty"`
	SystemUUID string    `json:"systemUUID"`
	BMCUUID    string    `json:"bmcUUID"` // as the BMC wrote it; the byte order may differ
	Serial     string    `json:"serial,omitempty"`
	Class      string    `json:"class,omitempty"` // bmc.Description.Class
	At         time.Time `json:"at"`
	// EnrolledBy is the person who confirmed the identity. It is empty if fenced pinned
	// the identity itself, by a match while the host was healthy.
	EnrolledBy string `json:"enrolledBy,omitempty"`
	// Reported has for each device what it reported when it was enrolled without a UUID
	// that identifies its host, one per line; the line of every other device is empty.
	// It is empty if all devices identify their host.
	Reported string `json:"reported,omitempty"`
	// Revoked says why the confirmation is no longer valid. It is empty while it is.
	Revoked string `json:"revoked,omitempty"`
	// Contradicted says on which other machine the Node was seen since. While it is not empty, the
	// pin identifies nothing: neither what fenced pinned nor what a person enrolled. What it
	// forbids, it still forbids. // I8
	Contradicted string `json:"contradicted,omitempty"`
}

var pinRecord = RecordType[Pin]{
	kind: KindPin, key: func(p Pin) string { return p.Host }, version: func(p *Pin) *uint64 { return &p.Version },
	name: func(p Pin) string { return "the pin of " + p.Host },
}

// SavePin writes the pin durably and returns it with its new version. For the errors see
// Store.Put.
func SavePin(ctx context.Context, s Store, p Pin) (Pin, error) { return pinRecord.save(ctx, s, p) }

// LoadPin returns the pin of a host, or ErrNotFound if it was never pinned.
func LoadPin(ctx context.Context, s Store, host string) (Pin, error) {
	return pinRecord.get(ctx, s, host)
}

// LoadPins returns all pins, and an error (ErrUnreadable) that names each record that cannot
// be read.
func LoadPins(ctx context.Context, s Store) ([]Pin, error) { return pinRecord.list(ctx, s) }

// RefusedAccount is an account that a device has refused. fenced does not try the account
// again before Until, because BMCs lock an account after repeated attempts. The password is
// not stored.
type RefusedAccount struct {
	Service string `json:"service"`
	Part    string `json:"part,omitempty"` // the part of the service that refused; empty: the login itself
	User    string `json:"user"`
	Kind    string `json:"kind"` // the kind of the bmc.Error
	// Salt and Mark show, with high probability, whether a password is the one that was
	// refused. Mark is one byte of a salted hash: too little to guess the password.
	Salt  string    `json:"salt"`
	Mark  string    `json:"mark"`
	Until time.Time `json:"until"`
}

// RefusedAccounts are the refused accounts that one instance knows.
type RefusedAccounts struct {
	Instance string           `json:"instance"`
	Version  uint64           `json:"-"`
	Accounts []RefusedAccount `json:"accounts"`
}

func (r RefusedAccounts) key() string { return "refused accounts " + r.Instance }

var refusedRecord = RecordType[RefusedAccounts]{
	kind: KindMeta, key: RefusedAccounts.key, version: func(r *RefusedAccounts) *uint64 { return &r.Version },
	name: func(RefusedAccounts) string { return "the refused accounts" },
}

// SaveRefusedAccounts writes the accounts durably and returns them with their new version.
// For the errors see Store.Put.
func SaveRefusedAccounts(ctx context.Context, s Store, r RefusedAccounts) (RefusedAccounts, error) {
	return refusedRecord.save(ctx, s, r)
}

// LoadRefusedAccounts returns the accounts that an instance saved. It returns none if there
// is no record, or if the record cannot be read: one more attempt with a wrong password does
// less harm than a daemon that does not start and leaves hosts off. An error means that the
// store did not answer.
func LoadRefusedAccounts(ctx context.Context, s Store, instance string) (RefusedAccounts, error) {
	none := RefusedAccounts{Instance: instance}
	rec, err := s.Get(ctx, KindMeta, none.key())
	if errors.Is(err, ErrNotFound) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read the refused accounts: %w", err)
	}
	r, err := refusedRecord.decode(rec)
	if err != nil {
		r, r.Version = none, rec.Version
	}
	return r, nil
}

// askedPrefix begins the keys of the records of what other remediators were asked. They are of
// KindMeta, so that a store of this schema can hold them. The key names also the target, as it was
// at first: so a record that cannot be read still says on what nobody may act.
const askedPrefix = "asked "

// askedKey is "asked CLUSTER ID NODE NAMESPACE MACHINE", with - for what there is none of.
func askedKey(r *escalate.Record) string {
	if r.Key != "" {
		return r.Key
	}
	t := r.Target
	key := func(machine string) string {
		fields := []string{t.Cluster, r.ID, t.Node, t.Namespace, machine}
		for i, f := range fields {
			if fields[i] = url.QueryEscape(f); f == "" {
				fields[i] = "-"
			}
		}
		return askedPrefix + strings.Join(fields, " ")
	}
	if full := key(t.Machine); len(full) <= MaxKey || t.Node == "" {
		return full
	}
	return key("") // its Node names the target, too
}

// askedOf is what a key says of its record.
func askedOf(key string) (r escalate.Record, err error) {
	fields := strings.Split(strings.TrimPrefix(key, askedPrefix), " ")
	if len(fields) != 5 {
		return r, fmt.Errorf("%s does not name a target", RecordName(KindMeta, key))
	}
	for i, f := range fields {
		if fields[i], err = url.QueryUnescape(f); err != nil {
			return r, fmt.Errorf("%s: %w", RecordName(KindMeta, key), err)
		}
		if strings.ContainsFunc(fields[i], func(c rune) bool { return !unicode.IsPrint(c) }) { // it is shown to people
			return r, fmt.Errorf("%s: %q is no name", RecordName(KindMeta, key), fields[i])
		}
		if f == "-" {
			fields[i] = ""
		}
	}
	r = escalate.Record{ID: fields[1], Key: key, Target: remediate.Target{Cluster: fields[0], Node: fields[2], Machine: fields[4]}}
	if r.Target.Machine != "" {
		r.Target.Namespace = fields[3]
	}
	if r.ID == "" || r.Target.Cluster == "" || len(r.Target.Names()) == 0 {
		return r, fmt.Errorf("%s does not name a target", RecordName(KindMeta, key))
	}
	return r, nil
}

var askedRecord = RecordType[escalate.Record]{
	kind: KindMeta, key: func(r escalate.Record) string { return askedKey(&r) }, version: func(r *escalate.Record) *uint64 { return &r.Version },
	name: func(r escalate.Record) string {
		return "what another remediator was asked about " + strings.Join(r.Target.Names(), ", ")
	},
	under: func(r *escalate.Record, key string) error { // the target may have become another since
		named, err := askedOf(key)
		if err == nil && (r.ID != named.ID || r.Target.Cluster != named.Target.Cluster) {
			err = fmt.Errorf("it holds the record of %q in cluster %q", r.ID, r.Target.Cluster)
		}
		r.Key = key
		return err
	},
}

// SaveAsked writes the record durably and returns it with its new version. An object is made only
// after that. For the errors see Store.Put. // I19
func SaveAsked(ctx context.Context, s Store, r escalate.Record) (escalate.Record, error) {
	if r.ID == "" || r.Target.Cluster == "" || r.Unreadable != "" {
		return r, errors.New("save what another remediator was asked: the record has no ID or no cluster, or was not read")
	}
	keyed := r
	keyed.Key = askedKey(&r)
	saved, err := askedRecord.save(ctx, s, keyed)
	if err != nil {
		return r, err
	}
	return saved, nil
}

// LoadAsked returns all records of what other remediators were asked. One that cannot be read says
// so in Unreadable, and has the ID and the target of its key. The error (ErrUnreadable) names each
// record whose key names no target. If the store cannot be listed, it returns none. // I20
func LoadAsked(ctx context.Context, s Store) ([]escalate.Record, error) {
	return decodeAll(ctx, s, KindMeta, func(rec Record) (escalate.Record, error) {
		if !strings.HasPrefix(rec.Key, askedPrefix) {
			return escalate.Record{}, errSetAside
		}
		named, err := askedOf(rec.Key)
		if err != nil {
			return named, err
		}
		r, err := askedRecord.decode(rec)
		if err != nil {
			r, r.Version, r.Unreadable = named, rec.Version, err.Error()
		}
		return r, nil
	})
}

// DeleteAsked deletes a record. For the errors see Store.Delete.
func DeleteAsked(ctx context.Context, s Store, r escalate.Record) error {
	return askedRecord.delete(ctx, s, r)
}
