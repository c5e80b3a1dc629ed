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

	closeTimeout = 2 * time.Second
	busyPause    = 250 * time.Millisecond
)

// Client is one BMC over IPMI. It opens a session when one is needed, and keeps
// it for the next operation. One goroutine may use it at a time.
type Client struct {
	place
	account account
	timing  bmc.Timing
	suites  []suite  // to try in order; the one that worked comes first
	unfit   error    // why this host cannot be driven over IPMI at all
	session *session // nil while none is open
	// read is the system GUID that answered the last Read; nil before the first.
	read *[16]byte
}

var _ bmc.Power = (*Client)(nil)

// errUnusableAccount marks a host whose configuration IPMI cannot carry.
var errUnusableAccount = errors.New("not possible over IPMI")

// serials numbers the sessions of all clients, so that no two readings from
// different sessions can look alike. // I1
var serials atomic.Uint64

// New returns a client for the BMC d. It does not dial; one that IPMI
// cannot drive is reported by every operation.
func New(d bmc.Device, t bmc.Timing) *Client {
	level, known := privileges[d.Endpoint.Privilege]
	c := &Client{
		place:   place{d.Endpoint.HostPort(), d.Networks},
		account: account{user: d.Username, password: d.Password.Reveal(), privilege: level},
		timing:  t,
	}
	var suitesErr error
	c.suites, suitesErr = chooseSuites(d.CipherSuites)
	switch {
	case len(c.account.password) > maxPassword:
		c.unfit = fmt.Errorf("%w: the password is longer than the %d bytes IPMI 2.0 allows", errUnusableAccount, maxPassword)
	case len(c.account.user) > maxUser:
		c.unfit = fmt.Errorf("%w: user name %q is longer than %d bytes", errUnusableAccount, c.account.user, maxUser)
	case !known:
		c.unfit = fmt.Errorf("%w: privilege %q is neither OPERATOR nor ADMINISTRATOR", errUnusableAccount, d.Endpoint.Privilege)
	case suitesErr != nil:
		c.unfit = suitesErr
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
			return nil, fmt.Errorf("%w: cipher suite %d is not allowed, only 17 and 3 authenticate and encrypt well enough", errUnusableAccount, n)
		}
		chosen = append(chosen, suites[i])
	}
	return chosen, nil
}

// Read asks for the power state.
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
	c.read = &c.session.guid
	return bmc.Reading{
		State: state, Raw: raw, Fault: fault,
		At:       c.session.used,
		Session:  c.session.serial,
		Identity: bmc.Identity{UUID: hex.EncodeToString(c.session.guid[:])},
	}, nil
}

// Send gives an absolute command, to the BMC that answered the last Read or to none:
// by another session the address may lead to another BMC. // I8
func (c *Client) Send(ctx context.Context, command bmc.Command) (bmc.Receipt, error) {
	name := "send " + command.String()
	r, known := chassisControl(command)
	if !known {
		return bmc.Receipt{}, c.explain(name, bmc.SentNo, errUnusableAccount)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timing.SendTimeout)
	defer cancel()
	op := &operation{client: c, only: c.read}
	answer, err := op.do(ctx, r)
	switch {
	case err != nil:
		return bmc.Receipt{}, c.explain(name, op.sent(), err)
	case answer.code == codePresentState:
		// The BMC says "already so". Not a failure, and not a proof either.
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
		s.tell(s.datagram(s.closing()))
		return nil // as much as a caller without time can ask for
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	answer, err := s.command(ctx, s.closing(), func() {})
	if err == nil && answer.code != codeOK {
		err = &codeError{answer.code}
	}
	if err != nil {
		return c.explain("close session", bmc.SentNo, err)
	}
	return nil
}

// drop forgets the session, and tells the BMC without waiting.
func (c *Client) drop() {
	if c.session != nil {
		c.session.abandon()
		c.session = nil
	}
}

func (c *Client) explain(op string, sent bmc.Sent, err error) error {
	return &bmc.Error{Kind: kindOf(err), Op: op, Addr: c.addr, Sent: sent, Err: err}
}
