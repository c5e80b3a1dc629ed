package ipmi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

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
