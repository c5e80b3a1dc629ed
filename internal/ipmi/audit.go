package ipmi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/fenced/fenced/internal/bmc"
)

// auditTries limits the tries of each request of an audit. Some BMCs drop what
// they do not allow, so no answer means a refusal.
const auditTries = 3

var _ bmc.Auditor = (*Client)(nil)

// Audit looks for ways to log in without our password: cipher suite 0 and an
// account without a name. It stops at the BMC's first answer, never logs in, and
// ends each handshake that it started.
func (c *Client) Audit(ctx context.Context) ([]bmc.Finding, error) {
	const name = "audit"
	if c.configErr != nil {
		return nil, c.explain(name, bmc.SentNo, c.configErr)
	}
	var findings []bmc.Finding
	nullUser, err := c.nullUser(ctx)
	if err != nil {
		return nil, c.explain(name, bmc.SentNo, err)
	}
	zero, err := c.cipherZero(ctx)
	if err != nil {
		return nil, c.explain(name, bmc.SentNo, err)
	}
	if zero {
		findings = append(findings, bmc.Finding{Code: bmc.FindingCipherZero,
			Message: "the BMC opens IPMI sessions with cipher suite 0, which needs no password: disable that suite on the BMC's LAN channel"})
	}
	if nullUser {
		findings = append(findings, bmc.Finding{Code: bmc.FindingNullUser,
			Message: "the BMC has an enabled IPMI account without a name: disable user 1, or give it a name and a long password"})
	}
	return findings, nil
}

// cipherZero reports whether the BMC opens a session without authentication,
// integrity and encryption.
func (c *Client) cipherZero(ctx context.Context) (bool, error) {
	algorithms := [3]byte{}
	x := newExchange(account{privilege: privileges[""]}, suites[0])
	none := x.openStep()
	none.build = func(tag byte) []byte { return openRequest(tag, x.consoleID, algorithms) }
	none.take = func(rest []byte) error { return x.acceptOpenWith(rest, algorithms) }
	err := c.probe(ctx, x, func(ctx context.Context, w *wire) error {
		return x.ask(ctx, w, opening{auditTries, firstWait}, none)
	})
	return err == nil, ignoreRefusal(err)
}

// nullUser reports whether the BMC has an account without a name. The BMC answers
// RAKP 1 for that name with an authentication code, as for an existing account.
// Some BMCs answer like this to any name, to hide which exist; then nothing is
// reported.
func (c *Client) nullUser(ctx context.Context) (bool, error) {
	known, err := c.isKnownUser(ctx, "")
	if err != nil || !known {
		return false, err
	}
	var unheard [maxUser / 2]byte
	rand.Read(unheard[:])
	any, err := c.isKnownUser(ctx, hex.EncodeToString(unheard[:]))
	return !any, err
}

// isKnownUser reports whether the BMC continues the handshake for the user, with
// a suite that it accepts.
func (c *Client) isKnownUser(ctx context.Context, user string) (bool, error) {
	var err error
	open := opening{openTries, firstWait}
	for i, suite := range c.suites {
		if i == len(c.suites)-1 {
			open.tries = 0 // a BMC that answers nothing at all is not audited
		}
		x := newExchange(account{user: user, privilege: privileges[""]}, suite)
		err = c.probe(ctx, x, func(ctx context.Context, w *wire) error {
			if err := x.ask(ctx, w, open, x.openStep()); err != nil {
				return err
			}
			return x.ask(ctx, w, opening{auditTries, waitAfter(w.took)}, x.rakp1Step())
		})
		if !mayTryOtherSuite(err) {
			break
		}
	}
	var refusal *statusError
	if err == nil || errors.Is(err, errWrongPassword) || errors.As(err, &refusal) && refusal.kind() == bmc.KindPrivilege {
		return true, nil // the account exists: with an empty password, another one, or too little privilege
	}
	return false, ignoreRefusal(err)
}

// probe runs fn, a part of the handshake x, on a separate socket and with the
// timeout of a read. It leaves no session on the BMC.
func (c *Client) probe(ctx context.Context, x *exchange, fn func(context.Context, *wire) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	w, err := c.dial(ctx)
	if err != nil {
		return err
	}
	err = fn(ctx, w)
	x.cleanUp(w, err)
	return withDeadline(ctx, err)
}

// ignoreRefusal drops errors that answer a request of an audit: a refusal, other
// algorithms, or no answer. Other errors mean that the request failed.
func ignoreRefusal(err error) error {
	var refusal *statusError
	switch {
	case errors.As(err, &refusal) && refusal.kind() != bmc.KindSessions:
		return nil
	case errors.Is(err, errOtherAlgorithms), errors.Is(err, errNoAnswer):
		return nil
	}
	return err
}
