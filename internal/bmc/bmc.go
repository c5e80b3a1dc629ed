package bmc

import (
	"context"
	"time"
)

// PowerState is a power state read from a BMC. The zero value is Unknown: a
// failed read, a transitional text ("PoweringOff"), a null or an empty field.
type PowerState uint8

// The power states. There is no bool form: Unknown is never off.
const (
	Unknown PowerState = iota
	On
	Off
)

// String gives the word operators see.
func (s PowerState) String() string {
	switch s {
	case On:
		return "On"
	case Off:
		return "Off"
	}
	return "Unknown"
}

// Command is an absolute command to a BMC. There is no cycle, reset or soft form,
// so sending one twice is harmless. // I3
type Command uint8

// The two commands: Off is ForceOff (Redfish) or chassis control 0 (IPMI).
const (
	CommandOff Command = iota + 1
	CommandOn
)

// String gives the word operators see.
func (c Command) String() string {
	switch c {
	case CommandOff:
		return "off"
	case CommandOn:
		return "on"
	}
	return "no command"
}

// Reading is one answer of a BMC about its host.
type Reading struct {
	State PowerState
	// Raw is the text or byte as the BMC gave it, at most 64 bytes, for people.
	Raw string
	// At is when the reply arrived, wall clock with the monotonic part kept.
	At time.Time
	// Took is how long the device took to answer, with the set-up of a session and
	// without the wait for its turn; zero if it was not measured.
	Took time.Duration
	// Session changes when the session, or the BMC behind it, restarted. Two
	// readings with different values never support one proof.
	Session uint64
	// Identity is who answered, as far as the protocol tells.
	Identity Identity
	// Fault is a control fault or an interlock; empty means none. It voids a proof.
	Fault string
	// Parts are the readings of the devices of a level with several devices, in
	// their order. State is then Off only if each reads Off, and On if any does.
	Parts []Reading
	// Partial: some device of the level reads On and another does not.
	Partial bool
	// Contradicted: each device of the level reads Off, and a lower level reads On.
	// State is On, and the devices may be those of another machine.
	Contradicted bool
	// Unwitnessed: each device of the level reads Off, and a lower level has not
	// been read since. State is Unknown until then.
	Unwitnessed bool
}

// Receipt is the result of an accepted command. It is never a proof of a state.
type Receipt struct {
	// Already is true if the BMC refused because the host is already in that state.
	Already bool
}

// Opener returns the Power of a device. It does not connect.
type Opener func(Device) (Power, error)

// Power is one BMC. Every method returns promptly when ctx ends, limits what it
// reads, retries only inside ctx, and returns errors of type *Error. An
// implementation may be used by one goroutine at a time.
type Power interface {
	// Read reads the power state. A transitional or unintelligible answer is a
	// Reading with State Unknown and Raw set, not an error.
	Read(ctx context.Context) (Reading, error)
	// Send sends an absolute command; it is idempotent. nil means that the BMC
	// accepted the command, or reported that the host is already in that state. It
	// does not mean that the state was reached. After an error with SentMaybe the
	// command may have been carried out.
	Send(ctx context.Context, c Command) (Receipt, error)
	// Close ends the session on the BMC, even if an earlier ctx had ended. It takes
	// at most two seconds and may be called more than once.
	Close(ctx context.Context) error
}
