package engine

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
)

// Subject is one host of the inventory as a health check of its BMCs needs it.
type Subject struct {
	Cluster string
	Node    string // empty for a BareMetalHost that no Node uses
	// Host has its credentials filled in. It is empty when Err is not nil.
	Host bmc.Host
	// Err is a *Refusal that says why the host cannot be used.
	Err error
	// SystemUUID is the Node's.
	SystemUUID string
	// Serial and MACs are the hardware's second factor, where a BareMetalHost
	// tells them; lower case.
	Serial string
	MACs   []string
	// Healthy: the Node is Ready=True now, so what its BMC says can be pinned.
	Healthy bool
}

// Checked is what a health check found about one device of a Subject.
type Checked struct {
	Subject       Subject
	Level, Device int // indexes into Subject.Host.Levels and its Devices
	At            time.Time
	// Reading is the power reading; Err why there is none.
	Reading bmc.Reading
	Err     error
	Latency time.Duration // of the reading, session set-up included
	// Description is empty when the device tells none, or was not asked this time.
	Description bmc.Description
	// Identity is what Engine.Identify made of the reading.
	Identity policy.IdentityVerdict
}
