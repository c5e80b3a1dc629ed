package ipmi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// maxHandshakes bounds how often one operation opens a session. // bmc.md 7.3
const maxHandshakes = 4

// operation is one Read or Send, over as many sessions as it needs.
type operation struct {
	client     *Client
	only       *[16]byte // the system GUID that must answer; nil is any
	handshakes int
	doubted    bool // the BMC refused a RAKP 3 that was right, as far as we know
	unanswered int  // datagrams with the command itself that await their reply
	answered   bool
}

// do carries out r in an open session, and opens one when there is none, when
// it went silent, or when it was idle too long. Busy answers are waited out.
func (o *operation) do(ctx context.Context, r request) (reply, error) {
	for pause := busyPause; ; {
		s, err := o.live(ctx)
		if err != nil {
			return reply{}, timeUp(ctx, err)
		}
		if o.only != nil && *o.only != s.guid {
			return reply{}, &strangerError{*o.only, s.guid}
		}
		answer, err := o.try(ctx, s, r)
		switch {
		case err == nil && kindOf(&codeError{answer.code}) == bmc.KindBusy:
			busy := &codeError{answer.code}
			if err := sleep(ctx, pause); err != nil {
				return reply{}, timeUp(ctx, busy)
			}
			pause = min(2*pause, lastWait)
		case errors.Is(err, errSilent):
			o.client.drop()
		case err != nil:
			o.client.settle(ctx, err)
			return reply{}, err
		default:
			return answer, nil
		}
	}
}

// try sends r once over s, which may have to be raised to a privilege first.
func (o *operation) try(ctx context.Context, s *session, r request) (reply, error) {
	if r.privileged && !s.raised {
		answer, err := s.command(ctx, setPrivilege(s.privilege), func() {})
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
		s.raised = true
	}
	answer, err := s.command(ctx, r, func() { o.unanswered++ })
	if err == nil {
		o.unanswered--
		o.answered = true
	}
	return answer, err
}

// sent says what is known about the command's arrival. A command whose reply
// was lost may have been carried out, whatever later ones were told.
func (o *operation) sent() bmc.Sent {
	switch {
	case o.unanswered > 0:
		return bmc.SentMaybe
	case o.answered:
		return bmc.SentYes
	}
	return bmc.SentNo
}

// live returns an open session.
func (o *operation) live(ctx context.Context) (*session, error) {
	c := o.client
	if c.unfit != nil {
		return nil, c.unfit
	}
	if c.session != nil && time.Since(c.session.used) <= idleLimit {
		return c.session, nil
	}
	c.drop()
	err := errSilent
	for o.handshakes < maxHandshakes {
		o.handshakes++
		var s *session
		if s, err = c.open(ctx); err == nil {
			s.serial, s.used = serials.Add(1), time.Now()
			c.session = s
			return s, nil
		}
		if !o.again(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%d handshakes: %w", o.handshakes, err)
}

// again says whether a new handshake can mend err. What the BMC holds against
// the account is told at once: more tries would lock it.
func (o *operation) again(err error) bool {
	var refusal *statusError
	switch {
	case errors.Is(err, errSilent), errors.Is(err, errWrongKey):
		return true
	case !errors.As(err, &refusal):
		return false
	case refusal.kind() == bmc.KindAuth && refusal.message == "RAKP 3" && !o.doubted:
		// RAKP 2 proved that the password is right. A RAKP 1 that the network
		// doubled makes the BMC expect another answer; once is no lock-out.
		o.doubted = true
		return true
	}
	return refusal.kind() == bmc.KindProtocol
}

// open tries the cipher suites in order until the BMC takes one.
func (c *Client) open(ctx context.Context) (*session, error) {
	var err error
	for i, suite := range c.suites {
		var s *session
		if s, err = handshake(ctx, c.place, c.account, suite); err == nil {
			c.suites[0], c.suites[i] = c.suites[i], c.suites[0]
			return s, nil
		}
		if !otherSuite(err) {
			return nil, err
		}
	}
	return nil, err
}

// otherSuite says whether another cipher suite may be accepted where this one led
// to err.
func otherSuite(err error) bool {
	var refusal *statusError
	return errors.Is(err, errOtherAlgorithms) || errors.As(err, &refusal) && refusal.kind() == bmc.KindUnsupported
}

// settle ends a session that no longer works: the BMC closed its port. An
// answer that refuses, or a caller whose time is up, says nothing against it.
func (c *Client) settle(ctx context.Context, err error) {
	var answered interface{ kind() bmc.Kind }
	if ctx.Err() == nil && !errors.As(err, &answered) {
		c.drop()
	}
}

// strangerError is a BMC that is not the one that was read.
type strangerError struct{ read, answers [16]byte }

func (e *strangerError) Error() string {
	return fmt.Sprintf("the BMC of the system %x was read, and now that of %x answers: no command is sent", e.read, e.answers)
}

func (e *strangerError) kind() bmc.Kind { return bmc.KindIdentity }

// privilegeError is a refused Set Session Privilege Level.
type privilegeError struct{ code byte }

func (e *privilegeError) Error() string {
	return fmt.Sprintf("the account may not have the privilege asked for (completion code 0x%02x)", e.code)
}

func (e *privilegeError) kind() bmc.Kind { return bmc.KindPrivilege }
