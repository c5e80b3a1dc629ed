package state

import (
	"context"
	"fmt"
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

// SavePin writes the pin durably and returns it with its new version.
func SavePin(ctx context.Context, s Store, p Pin) (Pin, error) {
	data, err := encode(p)
	if err != nil {
		return p, fmt.Errorf("save the pin of %s: %w", p.Host, err)
	}
	version, err := s.Put(ctx, Record{Kind: KindPin, Key: p.Host, Version: p.Version, Data: data})
	if err != nil {
		return p, fmt.Errorf("save the pin of %s: %w", p.Host, err)
	}
	p.Version = version
	return p, nil
}

// LoadPin reads the pin of a host; ErrNotFound when it was never pinned.
func LoadPin(ctx context.Context, s Store, host string) (Pin, error) {
	r, err := s.Get(ctx, KindPin, host)
	if err != nil {
		return Pin{}, err
	}
	return decodePin(r)
}

// LoadPins reads all pins, beside an error that names each unreadable one.
func LoadPins(ctx context.Context, s Store) ([]Pin, error) {
	return load(ctx, s, KindPin, decodePin)
}

func decodePin(r Record) (Pin, error) {
	var p Pin
	err := decode(r.Data, &p)
	if err == nil && p.Host != r.Key {
		err = fmt.Errorf("it calls itself the pin of %q", p.Host)
	}
	if err != nil {
		return Pin{}, fmt.Errorf("read %s: %w", name(KindPin, r.Key), err)
	}
	p.Version = r.Version
	return p, nil
}
