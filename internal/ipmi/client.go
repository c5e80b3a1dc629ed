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

// operation is one Read or Send, over as many sessions as it needs.
type operation struct {
	client       *Client
	requiredGUID *[16]byte // the system GUID that must answer; nil means any
	// requiredSerial must answer in another session than its own; empty means any.
	requiredSerial hostSerial
	login          login
	opened         *session // the last session that this operation opened
	unanswered     int      // datagrams with the command itself that were not answered yet
	answered       bool
}

// do sends r in an open session. It opens a session if there is none, or if it
// does not answer or was idle too long. It retries while the BMC is busy.
func (o *operation) do(ctx context.Context, r request) (reply, error) {
	for pause := busyPause; ; {
		s, err := o.openSession(ctx)
		if err != nil {
			return reply{}, withDeadline(ctx, err)
		}
		if o.requiredGUID != nil && *o.requiredGUID != s.guid {
			return reply{}, &otherBMCError{*o.requiredGUID, s.guid}
		}
		if err := o.checkSerial(ctx, s); err != nil {
			return reply{}, err
		}
		answer, err := o.try(ctx, s, r)
		switch {
		case err == nil && kindOf(&codeError{answer.code}) == bmc.KindBusy:
			busy := &codeError{answer.code}
			if err := sleep(ctx, pause); err != nil {
				return reply{}, withDeadline(ctx, busy)
			}
			pause = min(2*pause, lastWait)
		case errors.Is(err, errNoAnswer):
			o.client.drop()
		case err != nil:
			o.client.dropClosedSession(ctx, err)
			return reply{}, err
		default:
			return answer, nil
		}
	}
}

// try sends r once over s. If r needs it, it first sets the session's privilege.
func (o *operation) try(ctx context.Context, s *session, r request) (reply, error) {
	if r.privileged && !s.privilegeSet {
		answer, err := s.command(ctx, setPrivilege(s.privilege), s == o.opened, func() {})
		if err != nil {
			return reply{}, err
		}
		if kindOf(&codeError{answer.code}) == bmc.KindBusy {
			return answer, nil
		}
		if answer.code >= 0x80 && answer.code <= 0x82 { // table 22-19
			return reply{}, &privilegeError{answer.code}
		}
		if answer.code != codeOK {
			return reply{}, &codeError{answer.code}
		}
		s.privilegeSet = true
	}
	answer, err := s.command(ctx, r, s == o.opened, func() { o.unanswered++ })
	if err == nil {
		o.unanswered--
		o.answered = true
	}
	return answer, err
}

// sent returns whether the command may have arrived. If its reply was lost, it
// may have been carried out, whatever later tries returned.
func (o *operation) sent() bmc.Sent {
	switch {
	case o.unanswered > 0:
		return bmc.SentMaybe
	case o.answered:
		return bmc.SentYes
	}
	return bmc.SentNo
}

// openSession returns an open session. The BMC knows one that this operation has
// opened: if it does not answer there, it is slow or the datagram was lost.
func (o *operation) openSession(ctx context.Context) (*session, error) {
	c := o.client
	if c.configErr != nil {
		return nil, c.configErr
	}
	if c.session != nil && time.Since(c.session.lastAnswer) <= idleLimit {
		return c.session, nil
	}
	c.drop()
	o.login.client = c
	s, err := o.login.open(ctx)
	if err != nil {
		return nil, err
	}
	s.serial, s.lastAnswer = serials.Add(1), time.Now()
	c.session, o.opened = s, s
	return s, nil
}

// dropClosedSession drops a session that no longer works: the BMC closed its
// port. A refusal or the end of ctx does not mean that.
func (c *Client) dropClosedSession(ctx context.Context, err error) {
	var answered interface{ kind() bmc.Kind }
	if ctx.Err() == nil && !errors.As(err, &answered) {
		c.drop()
	}
}

// otherBMCError: another BMC answers than the one that was read.
type otherBMCError struct{ read, answers [16]byte }

func (e *otherBMCError) Error() string {
	return fmt.Sprintf("the BMC of system %x was read, but the BMC of system %x answers now; no command was sent", e.read, e.answers)
}

func (e *otherBMCError) kind() bmc.Kind { return bmc.KindIdentity }

// privilegeError is a refused Set Session Privilege Level.
type privilegeError struct{ code byte }

func (e *privilegeError) Error() string {
	return fmt.Sprintf("the account may not use the requested privilege (completion code 0x%02x)", e.code)
}

func (e *privilegeError) kind() bmc.Kind { return bmc.KindPrivilege }

// hostSerial is the serial number of the host as one session read it.
type hostSerial struct {
	session uint64 // its number
	text    string // "" if the BMC reports none, or not in time
}

// serialInsteadOfGUID returns the serial number of the host if the GUID does not
// identify it; an empty one for every other BMC, which is asked nothing more. The
// inventory is read once in a session, so that all its readings are alike, and in a
// part of the time of a reading.
func (c *Client) serialInsteadOfGUID(ctx context.Context, s *session) hostSerial {
	if !c.ignoreUUID && bmc.UsableUUID(hex.EncodeToString(s.guid[:])) {
		return hostSerial{}
	}
	if c.serial.session == s.serial {
		return c.serial
	}
	own, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout/3)
	defer cancel()
	ask := untilSilent(func(r request) (reply, error) {
		return s.command(own, r, true, func() {}) // the BMC has just answered in this session
	})
	read := hostSerial{session: s.serial, text: fru{ask}.serial()}
	if ctx.Err() == nil { // else the caller ended it, and the BMC may report one yet // I8
		c.serial = read
	}
	return read
}

// checkSerial returns an error if another serial number answers in the session s
// than the required one. // I8
func (o *operation) checkSerial(ctx context.Context, s *session) error {
	required := o.requiredSerial
	if required.text == "" || s.serial == required.session {
		return nil
	}
	if now := o.client.serialInsteadOfGUID(ctx, s); now.text != required.text {
		return &otherSerialError{required.text, now.text}
	}
	return nil
}

// otherSerialError: another machine answers than the one that was read.
type otherSerialError struct{ read, answers string }

func (e *otherSerialError) Error() string {
	return fmt.Sprintf("the BMC of serial %q was read, but the BMC of serial %q answers now; no command was sent", e.read, e.answers)
}

func (e *otherSerialError) kind() bmc.Kind { return bmc.KindIdentity }
