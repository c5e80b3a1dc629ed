package state

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
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
	// Selector is KEY=VALUE,... if the order was about all Nodes with these labels; "": it named the Node.
	Selector string `json:"selector,omitempty"`
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
	Kind: KindHold, Key: Hold.Key, Version: func(h *Hold) *uint64 { return &h.Version },
	Name:  func(h Hold) string { return "the hold of " + h.Key() },
	Lasts: func(h Hold) bool { return h.By != "" && h.Active(time.Now()) }, // somebody may be at the host // I23
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
	Kind: KindFreeze, Key: func(f Freeze) string { return f.RunID }, Version: func(f *Freeze) *uint64 { return &f.Version },
	Name:  func(f Freeze) string { return "the freeze of " + f.Host + " by run " + f.RunID },
	Lasts: Freeze.Active, // until a person releases the host // I5
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
	Checks map[string]string `json:"checks,omitempty"` // name of a check or a budget in policies.d -> digest of what it selects
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
	Kind: KindCluster, Key: Cluster.Key, Version: func(c *Cluster) *uint64 { return &c.Version },
	Name: func(c Cluster) string {
		if c.Name == AllClusters {
			return "the record of all clusters"
		}
		return fmt.Sprintf("cluster %q", c.Name)
	},
	Check: func(c Cluster) error {
		if c.Name == allClustersKey {
			return errors.New("the name is reserved")
		}
		return nil
	},
	Lasts: func(Cluster) bool { return true }, // a pause, and what was armed // I23
}

// Pin is the identity that a host and its BMC have proven. From then on, a BMC at another
// address or with another UUID is not the BMC of that host. // I10
type Pin struct {
	Host    string `json:"host"` // bmc.Host.Name
	Version uint64 `json:"-"`
	Node    string `json:"node,omitempty"` // the Node on the host
	// MachineUID is that of the Machine on the host of an entry for a Machine: another
	// Machine of the same name may be on another host. Empty for all other hosts.
	MachineUID string `json:"machineUID,omitempty"`

	Address string `json:"address"`
	// Devices names every device that can switch the host, one per line (bmc.Host.Keys).
	Devices string `json:"devices,omitempty"`
	// Choice has for each device a digest of the parameters that choose the machine, one
	// per line (bmc.Device.Fingerprint).
	Choice string `json:"choice,omitempty"`
	// Secret names the Secrets of the devices, one per line. It is empty
	// if no device has a Secret.
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
	Kind: KindPin, Key: func(p Pin) string { return p.Host }, Version: func(p *Pin) *uint64 { return &p.Version },
	Name: func(p Pin) string { return "the pin of " + p.Host },
}

// SavePin writes the pin durably and returns it with its new version. For the errors see
// Store.Put.
func SavePin(ctx context.Context, s Store, p Pin) (Pin, error) { return pinRecord.Save(ctx, s, p) }

// LoadPin returns the pin of a host, or ErrNotFound if it was never pinned.
func LoadPin(ctx context.Context, s Store, host string) (Pin, error) {
	return pinRecord.get(ctx, s, host)
}

// LoadPins returns all pins, and an error (ErrUnreadable) that names each record that cannot
// be read. Pins that are not newer than after may be left out: see Tracking.
func LoadPins(ctx context.Context, s Store, after uint64) ([]Pin, error) {
	if t, ok := s.(Tracking); ok && after > 0 {
		records, err := t.ListAfter(ctx, KindPin, after)
		if err != nil {
			return nil, err
		}
		return decodeEach(records, pinRecord.Decode)
	}
	return pinRecord.list(ctx, s)
}

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
	// A health check waits until CheckUntil. That pause is CheckPause, and the next one is longer.
	CheckUntil time.Time     `json:"checkUntil,omitzero"`
	CheckPause time.Duration `json:"checkPause,omitempty"`
}

// RefusedAccounts are the refused accounts that one instance knows.
type RefusedAccounts struct {
	Instance string           `json:"instance"`
	Version  uint64           `json:"-"`
	Accounts []RefusedAccount `json:"accounts"`
}

func (r RefusedAccounts) key() string { return "refused accounts " + r.Instance }

var refusedRecord = RecordType[RefusedAccounts]{
	Kind: KindMeta, Key: RefusedAccounts.key, Version: func(r *RefusedAccounts) *uint64 { return &r.Version },
	Name: func(RefusedAccounts) string { return "the refused accounts" },
}

// SaveRefusedAccounts writes the accounts durably and returns them with their new version.
// For the errors see Store.Put.
func SaveRefusedAccounts(ctx context.Context, s Store, r RefusedAccounts) (RefusedAccounts, error) {
	return refusedRecord.Save(ctx, s, r)
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
	r, err := refusedRecord.Decode(rec)
	if err != nil {
		r, r.Version = none, rec.Version
	}
	return r, nil
}
