package state

import (
	"context"
	"time"
)

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

var pinRecord = recordType[Pin]{
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
