package guard

import (
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Limits are the configured thresholds of the guards, the keys of the same
// names under `guards`. internal/config holds their defaults and checks their
// ranges; guard does not. A zero value is applied as it is: only StartsPerHour
// and DeletionsPerHour treat 0 as "no limit". MaxInFlight and MaxInFlightPercent
// always allow one run, MaxInFlightTotal and MaxDeletions too.
type Limits struct {
	// QuietPeriod is how long no run starts after a start, a reload, the end of a
	// pause or an API outage. Facts.QuietUntil is when it ends.
	QuietPeriod time.Duration
	// ViewMaxAge is the greatest age of the watched objects.
	ViewMaxAge time.Duration
	// ClockSkewMax is the greatest difference between this host's clock and the API
	// server's, in either direction.
	ClockSkewMax time.Duration
	// MinPowerInterval is the time between the end of a run and the next run on the
	// same host. It doubles with each further failed run in a row, up to a day.
	MinPowerInterval time.Duration
	// MaxInFlight is how many runs may be open in one cluster, MaxInFlightPercent the
	// same in percent of its Nodes, rounded down. The smaller number applies.
	MaxInFlight        int
	MaxInFlightPercent int
	// MaxInFlightPerZone is how many runs may be open in one zone.
	MaxInFlightPerZone int
	// MaxInFlightTotal is how many runs may be open in all clusters together, over
	// all instances.
	MaxInFlightTotal int
	// StartsPerHour is how many runs a cluster may start per hour; 0 means no limit.
	StartsPerHour int
	// No run starts in a zone if at least ZoneBreakerMin of its Nodes, and at least
	// ZoneBreakerPercent of them, are not ready.
	ZoneBreakerPercent int
	ZoneBreakerMin     int
	// MaxDeletions is how many Machines of one check may be between their deletion and
	// the moment when they and their Nodes are gone. It always allows one.
	MaxDeletions int
	// DeletionTimeout is how long a deleted Machine counts there.
	DeletionTimeout time.Duration
	// DeletionsPerHour is how many runs that delete a Machine a cluster may start per
	// hour; 0 means no limit.
	DeletionsPerHour int
	// MaxFencesPerDay is how many runs one host may have within 24 hours.
	MaxFencesPerDay int
	// ZoneKey is the Node label that holds the zone; empty means no zones.
	ZoneKey string
}

// The modes of a cluster.
const (
	ModeObserve  = "observe"
	ModeEvaluate = "evaluate"
	ModeRespond  = "respond"
)

// Facts are what the daemon knows about one target and its context at the moment
// of the check. A string that says why is empty if nothing refuses.
type Facts struct {
	// Manual: a person ordered the action. Such an order skips clocks and rates;
	// see Gates.
	Manual bool
	// OwnRetry: fenced itself begins the run again. What a person ordered once waives nothing then.
	OwnRetry bool
	// ByAdmin: that person has the role admin.
	ByAdmin bool
	// Requested: a remediation request asks for the action. Mode respond allows only those,
	// and orders.
	Requested bool

	Mode  string
	Armed bool
	// ForeignOwner names another instance that owns the cluster. OwnerSource is
	// where that was read, if not from the Lease.
	ForeignOwner string
	OwnerSource  string
	Paused       string
	Held         string
	// FilesRefused says which file of policies.d or hosts.d has an error and may concern the cluster, EntryRefused what is
	// wrong in the entry of the host. // I18
	FilesRefused string
	EntryRefused string
	// AuditTrouble says why the audit log cannot be written, StateTrouble why the store cannot save a run: no
	// run can start meanwhile, whoever orders it. // I24
	AuditTrouble, StateTrouble string
	// Quarantined says why the daemon does not fence a host that was fenced too
	// often, QuarantinedUntil when that ends. It does not bind people. // I15
	Quarantined      string
	QuarantinedUntil time.Time

	ViewSynced bool
	ViewAge    time.Duration
	// ClockSkew is the API server's clock minus this host's: positive if the API
	// server is ahead. Of several API servers it is the farthest from this host's.
	ClockSkew       time.Duration
	QuietUntil      time.Time
	ClusterNodes    int
	ClusterNotReady int
	// NodesOfRuns are the Nodes that open runs, or other remediators that were asked, have deleted.
	NodesOfRuns int
	// NodesMismatch says why the visible Nodes are not those of this cluster.
	NodesMismatch string
	InFlight      int
	// InFlightTotal is the number of open runs in all clusters.
	InFlightTotal int
	// StartsLastHour is the number of runs that the cluster started in the last
	// hour. NextStart is when the bucket has a token for the next one.
	StartsLastHour int
	NextStart      time.Time
	Zone           string
	ZoneNodes      int
	ZoneNotReady   int
	ZoneInFlight   int
	// ZoneUnknown: the host may be in any zone. ZoneInFlight is then that of the fullest one.
	ZoneUnknown bool

	// OpenRun is the ID of an open run of the Machine, Node or host.
	OpenRun      string
	ControlPlane bool
	// QuorumHolds: by an uncached read, etcd keeps its quorum without this
	// control-plane member. If false, QuorumReason and QuorumDetail say why. // I12
	QuorumHolds  bool
	QuorumReason reason.Code
	QuorumDetail string
	// ControlPlaneRun is the ID of an open run of another control-plane host.
	ControlPlaneRun string
	// Replaced says which object of the target another one has replaced. // I2, I27
	Replaced string
	// Contested names another remediator that is alive.
	Contested string
	// NodeWithSameUUID names another Node with the same system UUID: both are one
	// host.
	NodeWithSameUUID string
	// Frozen is the host whose BMC reported Off while the host ran. FrozenReason is
	// reason.Frozen for this host, reason.ClassFrozen for others of its model and
	// firmware. // I5
	Frozen       string
	FrozenReason reason.Code
	// Duplicate names another host with the same machine. // I9
	Duplicate string
	// OwnHost says why the target is the host that this daemon runs on.
	OwnHost   string
	Protected bool

	// NeedsHost: the action needs a BMC. Host names the one that was found;
	// HostError and HostDetail say why none is usable.
	NeedsHost bool
	// AsksOther: another remediator is asked. That needs no BMC, and the limits of power cycles
	// count.
	AsksOther  bool
	Host       string
	HostError  reason.Code
	HostDetail string
	// PowerOwner is which owner of the host's power forbids to switch it.
	PowerOwner string
	Identity   IdentityFact
	// HostUnread: neither a probe nor the BMC health check has read the BMC. ClusterUnread: no
	// probe has read the cluster. What they would show counts as if it refused nothing.
	HostUnread, ClusterUnread bool

	// NodeAlive: Ready is Unknown, but the kubelet still renews its Lease.
	NodeAlive bool
	// LeaseTooLong says why fenced cannot wait for a renewal of the kubelet's Lease. // I5
	LeaseTooLong string
	LastRunEnded time.Time
	// FailedRunsInARow counts the newest runs of the host without success among
	// them, and without an hour of health after them.
	FailedRunsInARow int
	RunsLastDay      int
	// Deletion is about the deletion of the Machine. It counts if the action needs no
	// BMC: then the action deletes the Machine and switches no power.
	Deletion DeletionFact
}

// IdentityVerdict is the comparison of the BMC's UUID with the Node's.
type IdentityVerdict string

// The identity verdicts. IdentityUnread does not refuse: step 1 reads and
// compares the identity before it sends a command.
const (
	IdentityUnread   IdentityVerdict = ""
	IdentityMatches  IdentityVerdict = "match"
	IdentityDiffers  IdentityVerdict = "mismatch"
	IdentityUnproven IdentityVerdict = "unknown"
	// IdentityNotEnrolled: the device reports no identity, or only an enrolment
	// counts, and nobody has enrolled it.
	IdentityNotEnrolled IdentityVerdict = "not enrolled"
)

// IdentityFact is what is known about whether BMC and Node are the same machine.
type IdentityFact struct {
	// Mode is "required", "pinned" or "off".
	Mode    string
	BMC     string
	Node    string
	Verdict IdentityVerdict
	// Why explains an identity that is not proven, and says what to do; it may be empty.
	Why string
}

// DeletionFact is what is known for a run that deletes a Machine and switches no
// power.
type DeletionFact struct {
	// InProgress counts the Machines of the check whose deletion was asked for, and of
	// which the Machine or its Node still exists.
	InProgress int
	// LastHour is the number of such runs that the cluster started in the last hour.
	// Next is when the bucket has a token for the next one.
	LastHour int
	Next     time.Time
	// Last is the last deletion of a Machine of the same controller; zero: none is
	// known. FailedReplacements counts the Machines that the controller made in place
	// of deleted ones and that failed before they were ever Ready, in a row.
	Last               time.Time
	FailedReplacements int
	// StartingUntil is when the start-up timeout of a replacement ends that was never
	// Ready and has not failed itself; zero: the Machine is none.
	StartingUntil time.Time
}
