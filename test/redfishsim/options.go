package redfishsim

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"time"
)

// Options describe a service. The zero value is one host that is on, with a
// random UUID, behind the account admin, password secret.
type Options struct {
	// Addr is where to listen; empty lets the kernel choose on loopback.
	Addr string
	// User and Password are the one account.
	User, Password string
	// UUID is that of the one system, when Systems is empty; empty is random.
	UUID string
	// Off starts that one system powered off.
	Off bool
	// Systems are the hosts behind the service, in the collection's order.
	Systems []SystemOptions
	// Model and Firmware are what the BMC says it is itself.
	Model, Firmware string
	// CertificateUntil is the end of its certificate; zero is a day from now.
	CertificateUntil time.Time
	// CipherSuite is the only one that the service accepts, over TLS 1.2; 0 is Go's own
	// choice.
	CipherSuite uint16
	// Latency delays every answer; Faults can change it later.
	Latency time.Duration
}

// SystemOptions describe one host behind the service.
type SystemOptions struct {
	// ID is the last part of its URI; empty is its number, from 1.
	ID string
	// UUID is what it says it is; empty is random.
	UUID string
	// Serial is its serial number; empty is SN- and the ID.
	Serial string
	// MACs are those of its network interfaces; empty is one, made from its UUID.
	MACs []string
	// RestorePolicy is its PowerRestorePolicy; empty is LastState.
	RestorePolicy string
	// Off starts it powered off.
	Off bool
}

// withDefaults fills what o leaves open.
func (o Options) withDefaults() Options {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.User == "" {
		o.User = "admin"
	}
	if o.Password == "" {
		o.Password = "secret"
	}
	if o.Model == "" {
		o.Model = "SimBMC"
	}
	if o.Firmware == "" {
		o.Firmware = "1.0.0"
	}
	if o.CertificateUntil.IsZero() {
		o.CertificateUntil = time.Now().Add(24 * time.Hour)
	}
	if len(o.Systems) == 0 {
		o.Systems = []SystemOptions{{UUID: o.UUID, Off: o.Off}}
	}
	systems := make([]SystemOptions, len(o.Systems))
	for i, s := range o.Systems {
		if s.ID == "" {
			s.ID = fmt.Sprint(i + 1)
		}
		if s.UUID == "" {
			s.UUID = randomUUID()
		}
		if s.Serial == "" {
			s.Serial = "SN-" + s.ID
		}
		if len(s.MACs) == 0 {
			s.MACs = []string{macOf(s.UUID)}
		}
		if s.RestorePolicy == "" {
			s.RestorePolicy = "LastState"
		}
		systems[i] = s
	}
	o.Systems = systems
	return o
}

func randomUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, by its documentation
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// macOf is an address that is as unique as the UUID, in a range that no maker
// of network interfaces uses.
func macOf(uuid string) string {
	sum := sha256.Sum256([]byte(uuid))
	return fmt.Sprintf("AC:DE:48:%02X:%02X:%02X", sum[0], sum[1], sum[2])
}
