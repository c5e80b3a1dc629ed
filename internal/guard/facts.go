package guard

import (
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Limits are the configured thresholds of the guards; internal/config holds
// their defaults.
type Limits struct {
	QuietPeriod        time.Duration
	ViewMaxAge         time.Duration
	ClockSkewMax       time.Duration
	MinPowerInterval   time.Duration
	MaxInFlight        int
	MaxInFlightPercent int
	MaxInFlightPerZone int
	// MaxInFlightTotal is over all clusters and instances.
	MaxInFlightTotal int
	// StartsPerHour is how many runs a cluster may begin; 0 = no such limit.
	StartsPerHour      int
	ZoneBreakerPercent int
	ZoneBreakerMin     int
	MaxFencesPerDay    int
	ZoneKey            string
}

// The modes of a cluster.
const (
	ModeObserve  = "observe"
	ModeEvaluate = "evaluate"
	ModeRespond  = "respond"
)

// Facts are what the engine knows about one target and its surroundings at the
// moment of asking. Texts say why and are empty when there is nothing to say.
type Facts struct {
	// Manual: a person ordered it. Such an order skips the clocks and rates.
	Manual bool

	Mode  string
	Armed bool
	// ForeignOwner names another instance that holds the cluster, and OwnerSource what
	// says so, if not the Lease.
	ForeignOwner string
	OwnerSource  string
	Paused       string
	Held         string
	// Quarantined says why the daemon itself keeps off a host that comes to no rest,
	// and QuarantinedUntil when that ends. It does not bind people. // I15
	Quarantined      string
	QuarantinedUntil time.Time

	ViewSynced      bool
	ViewAge         time.Duration
	ClockSkew       time.Duration
	QuietUntil      time.Time
	ClusterNodes    int
	ClusterNotReady int
	// NodesElsewhere says why the Nodes that are seen are not this cluster's.
	NodesElsewhere string
	InFlight       int
	// InFlightTotal is that of all clusters.
	InFlightTotal int
	// StartsLastHour counts the runs that the cluster began, and NextStart is when the
	// bucket has a token for one more.
	StartsLastHour int
	NextStart      time.Time
	Zone           string
	ZoneNodes      int
	ZoneNotReady   int
	ZoneInFlight   int

	// OpenRun is the id of a run that is open on the Machine, Node or host.
	OpenRun      string
	ControlPlane bool
	// QuorumHolds: etcd survives the loss of this control-plane member, by an
	// uncached read. Else QuorumReason and QuorumDetail say why not. // I12
	QuorumHolds  bool
	QuorumReason reason.Code
	QuorumDetail string
	// ControlPlaneRun is a run that is open on another control-plane host.
	ControlPlaneRun string
	// Contested names the remediator that is alive.
	Contested string
	// UUIDTwin names another Node with the same system UUID: they are one host.
	UUIDTwin string
	// Frozen says whose BMC said Off about a host that lived; FrozenReason is Frozen
	// for this host's own, ClassFrozen for others of its model and firmware. // I5
	Frozen       string
	FrozenReason reason.Code
	// Duplicate names the other host that leads to the same machine. // I9
	Duplicate string
	// OwnHost says what makes the target this daemon's own host.
	OwnHost   string
	Protected bool

	// NeedsHost: the action is done over a BMC. Host names the one found;
	// HostError and HostDetail say why none is usable.
	NeedsHost  bool
	Host       string
	HostError  reason.Code
	HostDetail string
	// PowerOwner says whose wish about the host's power stands against ours.
	PowerOwner string
	Identity   IdentityFact

	// NodeAlive: Ready is Unknown, but the Lease was seen moving.
	NodeAlive    bool
	LastRunEnded time.Time
	// RunsNotDone counts the newest runs on the host that did not end well, without
	// one among them that did, nor an hour's health after them.
	RunsNotDone int
	RunsLastDay int
}

// IdentityVerdict is the comparison of the BMC's UUID with the Node's.
type IdentityVerdict string

// The identity verdicts. Unread is not a refusal: step 1 reads and compares
// before it sends anything.
const (
	IdentityUnread   IdentityVerdict = ""
	IdentityMatches  IdentityVerdict = "match"
	IdentityDiffers  IdentityVerdict = "mismatch"
	IdentityUnproven IdentityVerdict = "unknown"
	// IdentityNotEnrolled: the device tells no identity, or only a person's word
	// counts, and nobody has enrolled it.
	IdentityNotEnrolled IdentityVerdict = "not enrolled"
)

// IdentityFact is what is known about BMC and Node being the same machine.
type IdentityFact struct {
	// Mode is "required", "pinned" or "off".
	Mode    string
	BMC     string
	Node    string
	Verdict IdentityVerdict
}
