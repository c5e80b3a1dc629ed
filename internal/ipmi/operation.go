package ipmi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// maxHandshakes limits how often one operation opens a session. // bmc.md 7.3
const maxHandshakes = 4

// operation is one Read or Send, over as many sessions as it needs.
type operation struct {
	client       *Client
	requiredGUID *[16]byte // the system GUID that must answer; nil means any
	// requiredSerial must answer in another session than its own; empty means any.
	requiredSerial hostSerial
	handshakes     int
	retriedRAKP3   bool // the BMC refused a RAKP 3 that should be correct
	unanswered     int  // datagrams with the command itself that were not answered yet
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
		s.privilegeSet = true
	}
	answer, err := s.command(ctx, r, func() { o.unanswered++ })
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

// openSession returns an open session.
func (o *operation) openSession(ctx context.Context) (*session, error) {
	c := o.client
	if c.configErr != nil {
		return nil, c.configErr
	}
	if c.session != nil && time.Since(c.session.lastAnswer) <= idleLimit {
		return c.session, nil
	}
	c.drop()
	err := errNoAnswer
	for o.handshakes < maxHandshakes {
		o.handshakes++
		var s *session
		if s, err = c.open(ctx); err == nil {
			s.serial, s.lastAnswer = serials.Add(1), time.Now()
			c.session = s
			return s, nil
		}
		if !o.canRetry(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%d handshakes: %w", o.handshakes, err)
}

// canRetry reports whether a new handshake can succeed after err. An error about
// the account is returned at once, because more tries would lock it.
func (o *operation) canRetry(err error) bool {
	var refusal *statusError
	switch {
	case errors.Is(err, errNoAnswer), errors.Is(err, errWrongKey):
		return true
	case !errors.As(err, &refusal):
		return false
	case refusal.kind() == bmc.KindAuth && refusal.message == "RAKP 3" && !o.retriedRAKP3:
		// RAKP 2 proved that the password is right. If the network duplicated RAKP 1,
		// the BMC expects another RAKP 3. One more try does not lock the account.
		o.retriedRAKP3 = true
		return true
	}
	return refusal.kind() == bmc.KindProtocol
}

// open tries the cipher suites in order until the BMC accepts one.
func (c *Client) open(ctx context.Context) (*session, error) {
	var err error
	for i, suite := range c.suites {
		var s *session
		if s, err = handshake(ctx, c.endpoint, c.account, suite); err == nil {
			c.suites[0], c.suites[i] = c.suites[i], c.suites[0]
			return s, nil
		}
		if !mayTryOtherSuite(err) {
			return nil, err
		}
	}
	return nil, err
}

// mayTryOtherSuite reports whether the BMC may accept another cipher suite after
// err.
func mayTryOtherSuite(err error) bool {
	var refusal *statusError
	return errors.Is(err, errOtherAlgorithms) || errors.As(err, &refusal) && refusal.kind() == bmc.KindUnsupported
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
