package ipmi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/fenced/fenced/internal/bmc"
)

// auditTries bounds each question of an audit: a BMC that drops what it does not
// allow says no by its silence.
const auditTries = 3

var _ bmc.Auditor = (*Client)(nil)

// Audit looks for what lets others in without our password: cipher suite 0 and an
// account without a name. It goes no further than the BMC's first answer, never
// logs in, and ends each handshake it began.
func (c *Client) Audit(ctx context.Context) ([]bmc.Finding, error) {
	const name = "audit"
	if c.unfit != nil {
		return nil, c.explain(name, bmc.SentNo, c.unfit)
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
			Message: "the BMC opens IPMI sessions with cipher suite 0, which asks for no password: disable that suite on the BMC's LAN channel"})
	}
	if nullUser {
		findings = append(findings, bmc.Finding{Code: bmc.FindingNullUser,
			Message: "the BMC has an enabled IPMI account without a name: disable user 1, or give it a name and a long password"})
	}
	return findings, nil
}

// cipherZero says whether the BMC opens a session with no authentication, no
// integrity and no encryption.
func (c *Client) cipherZero(ctx context.Context) (bool, error) {
	none := [3]byte{}
	x := newExchange(account{}, suites[0])
	opening := x.opening()
	opening.build = func(tag byte) []byte { return openRequest(tag, x.consoleID, none) }
	opening.take = func(rest []byte) error { return x.takeOpenWith(rest, none) }
	err := c.probe(ctx, x, func(ctx context.Context, w *wire) error {
		return x.ask(ctx, w, auditTries, opening)
	})
	return err == nil, onlyRefused(err)
}

// nullUser says whether the BMC knows an account without a name: it answers that
// name's RAKP 1 with a code, as it does for one that has a name. Some answer so to
// any name, to not tell which exist; they tell us nothing then.
func (c *Client) nullUser(ctx context.Context) (bool, error) {
	known, err := c.known(ctx, "")
	if err != nil || !known {
		return false, err
	}
	var unheard [maxUser / 2]byte
	rand.Read(unheard[:])
	any, err := c.known(ctx, hex.EncodeToString(unheard[:]))
	return !any, err
}

// known says whether the BMC goes on with the handshake of the user, in a suite
// that it takes.
func (c *Client) known(ctx context.Context, user string) (bool, error) {
	var err error
	for _, suite := range c.suites {
		x := newExchange(account{user: user, privilege: privileges[""]}, suite)
		err = c.probe(ctx, x, func(ctx context.Context, w *wire) error {
			if err := x.ask(ctx, w, 0, x.opening()); err != nil {
				return err
			}
			return x.ask(ctx, w, auditTries, x.hello())
		})
		if !otherSuite(err) {
			break
		}
	}
	var refusal *statusError
	if err == nil || errors.Is(err, errWrongPassword) || errors.As(err, &refusal) && refusal.kind() == bmc.KindPrivilege {
		return true, nil // with an empty password, another one, or too little privilege
	}
	return false, onlyRefused(err)
}

// probe runs fn, a part of the handshake x, over a socket of its own and within
// the time that a read may take; it leaves no session behind.
func (c *Client) probe(ctx context.Context, x *exchange, fn func(context.Context, *wire) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	w, err := c.dial(ctx)
	if err != nil {
		return err
	}
	err = fn(ctx, w)
	x.leave(w, err)
	return timeUp(ctx, err)
}

// onlyRefused drops what is an answer to a question of an audit: a refusal,
// other algorithms, or silence. What stays could not be asked.
func onlyRefused(err error) error {
	var refusal *statusError
	switch {
	case errors.As(err, &refusal) && refusal.kind() != bmc.KindSessions:
		return nil
	case errors.Is(err, errOtherAlgorithms), errors.Is(err, errSilent):
		return nil
	}
	return err
}
