package ipmi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	// maxHandshakes limits how often one operation opens a session.
	maxHandshakes = 4
	// openTries is how often a session is requested with one cipher suite before the
	// next is asked for. Some BMCs drop a request with a suite that they do not have.
	openTries = 3
)

// login opens the sessions of one operation.
type login struct {
	client       *Client
	handshakes   int           // that the BMC answered
	wait         time.Duration // for the answer to the next Open Session Request, at least
	patience     time.Duration // the same after a session that the BMC may have replaced
	suiteErrs    map[int]error // why the BMC does not use a suite; errSilent if it did not answer
	retriedRAKP3 bool          // the BMC refused a RAKP 3 that should be correct
	retriedKey   bool          // RAKP 4 did not fit
}

// open opens a session, with as many handshakes as are of use.
func (l *login) open(ctx context.Context) (*session, error) {
	err := errNoAnswer
	for l.handshakes < maxHandshakes {
		var s *session
		if s, err = l.tryEachSuite(ctx); err == nil {
			return s, nil
		}
		if ctx.Err() != nil || !l.canRetry(err) {
			return nil, l.withSuites(err)
		}
	}
	return nil, fmt.Errorf("%d handshakes: %w", l.handshakes, l.withSuites(err))
}

// tryEachSuite tries the cipher suites in order until the BMC uses one. It counts
// as one handshake, unless the BMC answered nothing.
func (l *login) tryEachSuite(ctx context.Context) (*session, error) {
	c, counted := l.client, false
	var err error
	for i, suite := range c.suites {
		var s *session
		s, err = handshake(ctx, c.endpoint, c.account, suite, l.opening())
		if errors.Is(err, errSilent) {
			l.carryWait()
		} else if l.wait = 0; !counted {
			counted = true
			l.handshakes++
		}
		if err == nil {
			c.suites[0], c.suites[i] = c.suites[i], c.suites[0]
			return s, nil
		}
		if l.note(suite, err); ctx.Err() != nil || !mayTryOtherSuite(err) {
			return nil, err
		}
	}
	return nil, err
}

// opening is how the next session is requested.
func (l *login) opening() opening {
	o := opening{openTries, max(firstWait, l.wait, l.patience)}
	if len(l.client.suites) == 1 {
		o.tries = 0
	}
	return o
}

// carryWait makes the next suite wait as the next try of the same suite would.
func (l *login) carryWait() {
	wait := l.opening().wait
	for range openTries {
		wait = longer(wait)
	}
	l.wait = wait
}

// mayTryOtherSuite reports whether the BMC may use another cipher suite after err.
func mayTryOtherSuite(err error) bool {
	var refusal *statusError
	return errors.Is(err, errOtherAlgorithms) || errors.Is(err, errSilent) && errors.Is(err, errNoAnswer) ||
		errors.As(err, &refusal) && refusal.kind() == bmc.KindUnsupported
}

// canRetry reports whether a new handshake can succeed after err. An error about
// the account is returned at once, because more tries would lock it. Only a RAKP 3
// proves the password to the BMC, so all that fails before it costs no try.
func (l *login) canRetry(err error) bool {
	var refusal *statusError
	var replaced *replacedError
	switch {
	case errors.As(err, &replaced):
		l.patience = min(max(lastWait, 2*l.patience, 2*replaced.took), longestWait)
		return true
	case errors.Is(err, errNoAnswer):
		return true
	case errors.Is(err, errWrongKey):
		// RAKP 4 may have been altered on its way. If not, every retry leaves a session
		// on the BMC that we have no key to close.
		retried := l.retriedKey
		l.retriedKey = true
		return !retried
	case !errors.As(err, &refusal):
		return false
	case refusal.kind() == bmc.KindAuth && refusal.message == "RAKP 3" && !l.retriedRAKP3:
		// RAKP 2 proved that the password is right. If the network duplicated RAKP 1,
		// the BMC expects another RAKP 3. One more try does not lock the account.
		l.retriedRAKP3 = true
		return true
	case refusal.kind() == bmc.KindUnsupported:
		return l.anySilent() // the suite that was not answered may be the right one
	}
	return refusal.kind() == bmc.KindProtocol
}

func (l *login) note(s suite, err error) {
	if l.suiteErrs == nil {
		l.suiteErrs = map[int]error{}
	}
	l.suiteErrs[s.id] = err
}

func (l *login) anySilent() bool {
	for _, err := range l.suiteErrs {
		if errors.Is(err, errSilent) {
			return true
		}
	}
	return false
}

// withSuites adds to err what became of each cipher suite, and the key that says
// which are asked for, if another suite could help.
func (l *login) withSuites(err error) error {
	var refusal *statusError
	unsupported := errors.As(err, &refusal) && refusal.kind() == bmc.KindUnsupported
	if !unsupported && !errors.Is(err, errSilent) && !errors.Is(err, errOtherAlgorithms) {
		return err
	}
	var list []string
	for _, s := range l.client.suites {
		became := "not asked for"
		if e := l.suiteErrs[s.id]; errors.Is(e, errSilent) {
			became = "not answered"
		} else if e != nil {
			became = "not supported"
		}
		list = append(list, fmt.Sprintf("%d: %s", s.id, became))
	}
	return fmt.Errorf("%w (cipher suite %s; the key cipherSuites says which are asked for)", err, strings.Join(list, ", "))
}
