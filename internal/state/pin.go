package state

import (
	"context"
	"time"
)

// Pin is the identity that one host and its BMC proved once. From then on a
// BMC at another address, or with another UUID, is not that host's. // I10
type Pin struct {
	Host    string `json:"host"` // bmc.Host.Name
	Version uint64 `json:"-"`
	Node    string `json:"node,omitempty"` // whose host it was; empty in older records

	Address string `json:"address"`
	// Devices names every device that can switch the host, one to a line
	// (bmc.Host.Keys); empty in older records, which have Address alone.
	Devices string `json:"devices,omitempty"`
	// Choice is what chooses the machine behind each of them, one digest to a line
	// (bmc.Device.Fingerprint); empty in older records.
	Choice string `json:"choice,omitempty"`
	// Secret names the Secrets of the devices, one to a line; empty in older records, and
	// where none comes from a Secret.
	Secret     string    `json:"secret,omitempty"`
	SystemUUID string    `json:"systemUUID"`
	BMCUUID    string    `json:"bmcUUID"` // as the BMC wrote it; the byte order may differ
	Serial     string    `json:"serial,omitempty"`
	Class      string    `json:"class,omitempty"` // bmc.Description.Class
	At         time.Time `json:"at"`
	// EnrolledBy is the person who vouched for it; empty when it was pinned by a
	// match while the host was healthy.
	EnrolledBy string `json:"enrolledBy,omitempty"`
	// Revoked is why nobody's word stands any more.
	Revoked string `json:"revoked,omitempty"`
}

var typePin = typed[Pin]{
	kind: KindPin, key: func(p Pin) string { return p.Host }, version: func(p *Pin) *uint64 { return &p.Version },
	name: func(p Pin) string { return "the pin of " + p.Host },
}

// SavePin writes the pin durably and returns it with its new version.
func SavePin(ctx context.Context, s Store, p Pin) (Pin, error) { return typePin.save(ctx, s, p) }

// LoadPin reads the pin of a host; ErrNotFound when it was never pinned.
func LoadPin(ctx context.Context, s Store, host string) (Pin, error) {
	return typePin.get(ctx, s, host)
}

// LoadPins reads all pins, beside an error that names each unreadable one.
func LoadPins(ctx context.Context, s Store) ([]Pin, error) { return typePin.list(ctx, s) }
