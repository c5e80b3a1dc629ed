package ipmi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxPassword = 20 // bytes, table 22-42
	maxUser     = 16
	maxBMCKey   = 20

	closeTimeout = 2 * time.Second
	busyPause    = 250 * time.Millisecond
)

// Client is one BMC over IPMI. It opens a session when needed, and keeps it for
// the next operation. One goroutine may use it at a time.
type Client struct {
	endpoint
	account   account
	timing    bmc.Timing
	suites    []suite  // to try in order; the one that worked is moved to the front
	configErr error    // why the configuration cannot be used over IPMI
	session   *session // nil if none is open
	// lastGUID is the system GUID that answered the last Read; nil before the
	// first.
	lastGUID *[16]byte
	// ignoreUUID: the GUID does not identify the host, whatever it is.
	ignoreUUID bool
	// lastSerial is the serial number that came with the last Read, serial the newest
	// one. Both are empty if the GUID identifies the host.
	lastSerial, serial hostSerial
}

var _ bmc.Power = (*Client)(nil)

// errUnusableAccount marks a configuration that cannot be used over IPMI.
var errUnusableAccount = errors.New("not possible over IPMI")

// serials numbers the sessions of all clients, so that readings from different
// sessions never look alike. // I1
var serials atomic.Uint64

// New returns a client for the BMC d. It does not connect. If the configuration
// cannot be used over IPMI, every operation returns an error.
func New(d bmc.Device, t bmc.Timing) *Client {
	level, known := privileges[d.Endpoint.Privilege]
	c := &Client{
		endpoint: endpoint{d.Endpoint.HostPort(), d.Networks},
		account:  account{user: d.Username, password: d.Password.Reveal(), bmcKey: d.BMCKey.Reveal(), privilege: level},
		timing:   t,

		ignoreUUID: d.IgnoreUUID,
	}
	var suitesErr error
	c.suites, suitesErr = chooseSuites(d.CipherSuites)
	switch {
	case len(c.account.password) > maxPassword:
		c.configErr = fmt.Errorf("%w: the password is longer than the %d bytes IPMI 2.0 allows", errUnusableAccount, maxPassword)
	case len(c.account.user) > maxUser:
		c.configErr = fmt.Errorf("%w: user name %q is longer than %d bytes", errUnusableAccount, c.account.user, maxUser)
	case len(c.account.bmcKey) > maxBMCKey:
		c.configErr = fmt.Errorf("%w: the key of the BMC (K_g) is longer than the %d bytes IPMI 2.0 allows", errUnusableAccount, maxBMCKey)
	case !known:
		c.configErr = fmt.Errorf("%w: privilege %q is neither OPERATOR nor ADMINISTRATOR", errUnusableAccount, d.Endpoint.Privilege)
	case suitesErr != nil:
		c.configErr = suitesErr
	}
	return c
}

func chooseSuites(ids []int) ([]suite, error) {
	if len(ids) == 0 {
		return slices.Clone(suites), nil
	}
	var chosen []suite
	for _, n := range ids {
		i := slices.IndexFunc(suites, func(s suite) bool { return s.id == n })
		if i < 0 {
			return nil, fmt.Errorf("%w: cipher suite %d is not allowed; use 17 or 3, the ones with strong enough authentication and encryption", errUnusableAccount, n)
		}
		chosen = append(chosen, suites[i])
	}
	return chosen, nil
}

// Read reads the power state.
func (c *Client) Read(ctx context.Context) (bmc.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	op := &operation{client: c}
	answer, err := op.do(ctx, chassisStatus)
	if err != nil {
		return bmc.Reading{}, c.explain("read power state", bmc.SentNo, err)
	}
	if answer.code != codeOK {
		return bmc.Reading{}, c.explain("read power state", bmc.SentNo, &codeError{answer.code})
	}
	state, raw, fault := readStatus(answer.data)
	c.lastGUID = &c.session.guid
	r := bmc.Reading{
		State: state, Raw: raw, Fault: fault,
		At:       c.session.lastAnswer,
		Session:  c.session.serial,
		Identity: bmc.Identity{UUID: hex.EncodeToString(c.session.guid[:])},
	}
	c.lastSerial = c.serialInsteadOfGUID(ctx, c.session)
	r.Identity.Serial = c.lastSerial.text
	return r, nil
}

// Send sends an absolute command, only to the BMC that answered the last Read: in
// another session the address may lead to another BMC. It is idempotent. // I8
func (c *Client) Send(ctx context.Context, command bmc.Command) (bmc.Receipt, error) {
	name := "send " + command.String()
	r, known := chassisControl(command)
	if !known {
		return bmc.Receipt{}, c.explain(name, bmc.SentNo, errUnusableAccount)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timing.SendTimeout)
	defer cancel()
	op := &operation{client: c, requiredGUID: c.lastGUID, requiredSerial: c.lastSerial}
	answer, err := op.do(ctx, r)
	switch {
	case err != nil:
		return bmc.Receipt{}, c.explain(name, op.sent(), err)
	case answer.code == codePresentState:
		// The host is already in this state. That is neither a failure nor a proof.
		return bmc.Receipt{Already: true}, nil
	case answer.code != codeOK:
		return bmc.Receipt{}, c.explain(name, op.sent(), &codeError{answer.code})
	}
	return bmc.Receipt{}, nil
}

// Close ends the session on the BMC.
func (c *Client) Close(ctx context.Context) error {
	s := c.session
	if s == nil {
		return nil
	}
	c.session = nil
	defer s.wire.close()
	if ctx.Err() != nil {
		s.sendOnly(s.datagram(s.closing()))
		return nil // ctx has ended: do not wait for the answer
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	answer, err := s.command(ctx, s.closing(), true, func() {})
	if err == nil && answer.code != codeOK {
		err = &codeError{answer.code}
	}
	if err != nil {
		return c.explain("close session", bmc.SentNo, err)
	}
	return nil
}

// drop forgets the session, and ends it on the BMC without waiting.
func (c *Client) drop() {
	if c.session != nil {
		c.session.abandon()
		c.session = nil
	}
}

func (c *Client) explain(op string, sent bmc.Sent, err error) error {
	return &bmc.Error{Kind: kindOf(err), Op: op, Addr: c.addr, Sent: sent, Err: err}
}
