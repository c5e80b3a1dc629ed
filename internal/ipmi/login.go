package ipmi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
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
	// rakp1Tries is how often RAKP 1 is sent; then the BMC may have dropped the
	// session id.
	rakp1Tries = 3
)

// account is the login for sessions, and its privilege.
type account struct {
	user, password string
	bmcKey         string // [Kg]; empty means that the BMC has none
	privilege      byte
}

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
		if l.record(suite, err); ctx.Err() != nil || !mayTryOtherSuite(err) {
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

// record keeps what became of a suite.
func (l *login) record(s suite, err error) {
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

func (l *login) allSilent() bool {
	for _, err := range l.suiteErrs {
		if !errors.Is(err, errSilent) {
			return false
		}
	}
	return true
}

// withSuites adds to err what became of each cipher suite, and the key that says
// which are asked for, if another suite could help. Where nothing answered at all and
// no suite was left out, the BMC is away, whatever the suite.
func (l *login) withSuites(err error) error {
	var refusal *statusError
	unsupported := errors.As(err, &refusal) && refusal.kind() == bmc.KindUnsupported
	if !unsupported && !errors.Is(err, errSilent) && !errors.Is(err, errOtherAlgorithms) || l.allSilent() && len(l.client.suites) == len(suites) {
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

// opening is how Open Session Requests are sent.
type opening struct {
	tries int           // 0 means as many as ctx allows
	wait  time.Duration // for the answer to the first try
}

// handshake opens a session on a new socket with one cipher suite (section
// 13.15). On an error it leaves no session on the BMC, as far as possible.
func handshake(ctx context.Context, p endpoint, a account, s suite, o opening) (*session, error) {
	w, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	x := newExchange(a, s)
	sess, err := x.run(ctx, w, o)
	if err != nil {
		x.cleanUp(w, err)
		return nil, err
	}
	sess.privilege = a.privilege
	if x.unused.pending() {
		go x.endUnused(p)
	}
	return sess, nil
}

func newExchange(a account, s suite) *exchange {
	x := &exchange{suite: s, user: a.user, key: []byte(a.password), bmcKey: []byte(a.bmcKey),
		role: a.privilege | nameOnly, consoleID: randomID()}
	rand.Read(x.consoleRnd[:])
	return x
}

// run exchanges the six messages. RAKP 3 is sent only once: the BMC forgets the
// handshake when it answers, so after a lost RAKP 4 a new handshake is needed.
func (x *exchange) run(ctx context.Context, w *wire, o opening) (*session, error) {
	if err := x.ask(ctx, w, o, x.openStep()); err != nil {
		return nil, err
	}
	opened := w.took
	if err := x.settle(ctx, w); err != nil {
		return nil, err
	}
	if err := x.ask(ctx, w, opening{rakp1Tries, waitAfter(w.took)}, x.rakp1Step()); err != nil {
		if errors.Is(err, errWrongPassword) && x.mayBeReplaced() {
			return nil, &replacedError{opened}
		}
		return nil, err
	}
	sik, k1, k2 := x.keys()
	seal, err := newSealer(x.suite, k1, k2)
	if err != nil {
		return nil, err
	}
	sess := &session{wire: w, seal: seal, consoleID: x.consoleID, bmcID: x.bmcID, guid: x.guid}
	proof := step{name: "RAKP 3", request: payloadRAKP3, response: payloadRAKP4,
		build: x.rakp3,
		take:  func(rest []byte) error { return x.checkRAKP4(rest, sik) }}
	x.started = sess
	if err := x.ask(ctx, w, opening{1, waitAfter(w.took)}, proof); err != nil {
		return nil, err
	}
	return sess, nil
}

// settle waits for the other answers, if the Open Session Request was repeated.
func (x *exchange) settle(ctx context.Context, w *wire) error {
	if len(x.openTries) < 2 {
		return nil
	}
	take := func(b []byte) bool {
		if p, a, err := parseHandshake(b); err == nil {
			x.takeNewer(p, a)
		}
		return false
	}
	if err := w.receive(ctx, time.Now().Add(settleTime), take); !errors.Is(err, errNoAnswer) {
		return err
	}
	return nil
}

// mayBeReplaced reports whether the BMC may have put another session in place of
// ours: it saw the Open Session Request more than once. Some BMCs have one session
// for each client address, and keep that of the last request.
func (x *exchange) mayBeReplaced() bool { return len(x.openTries) > 1 || len(x.unused.known) > 0 }

func (x *exchange) openStep() step {
	build := func(tag byte) []byte {
		if x.openTries == nil {
			x.openTries = map[byte]int{}
		}
		x.openTries[tag] = len(x.openTries) + 1
		return x.openRequest(tag)
	}
	return step{name: "open session", request: payloadOpenRequest, response: payloadOpenResponse,
		build: build, take: x.acceptOpen, anyTry: true, unanswered: errSilent}
}

func (x *exchange) rakp1Step() step {
	return step{name: "RAKP 1", request: payloadRAKP1, response: payloadRAKP2, build: x.rakp1, take: x.acceptRAKP2,
		unanswered: errIgnored}
}

// step is one message of the handshake and its answer.
type step struct {
	name              string
	request, response byte
	build             func(tag byte) []byte
	take              func(rest []byte) error
	anyTry            bool  // an answer to an earlier try is accepted
	unanswered        error // what it means if no try is answered; nil for nothing special
}

// ask sends one message and accepts its answer. Each try has its own tag. For
// RAKP 1 and 3 only the answer to the newest try counts: after a repeated RAKP 1
// a BMC keeps the random number of its last answer, not of its first. A refusal
// that names no request counts if no other answer comes before the next try.
func (x *exchange) ask(ctx context.Context, w *wire, o opening, s step) error {
	var tag byte
	var sent [256]time.Time // of each tag; zero means that this step did not use it
	var verdict error
	var refusal *statusError // that names no request; an answer that does counts before it
	build := func() []byte {
		if refusal != nil {
			return nil
		}
		tag = x.nextTag()
		sent[tag] = time.Now()
		return plainDatagram(s.request, s.build(tag))
	}
	take := func(b []byte) bool {
		p, a, err := parseHandshake(b)
		if err != nil {
			return false
		}
		x.takeUnused(w, p, a)
		if p.payloadType != s.response {
			return false
		}
		if newest := a.tag == tag; !x.isOurs(a) || !newest && !(s.anyTry && !sent[a.tag].IsZero()) {
			if x.isUnaddressed(a) {
				refusal = &statusError{message: s.name, status: a.status}
			}
			return false
		}
		w.took = time.Since(sent[a.tag])
		if s.response == payloadOpenResponse {
			x.openTag = a.tag
		}
		if a.status != 0 {
			verdict = &statusError{message: s.name, status: a.status}
			return true
		}
		verdict = s.take(a.rest)
		return !errors.Is(verdict, errMalformed)
	}
	err := w.ask(ctx, o.tries, o.wait, build, take)
	switch {
	case err == nil:
		return verdict
	case refusal != nil:
		return refusal
	case s.unanswered != nil && (errors.Is(err, errNoAnswer) || ctx.Err() != nil):
		return fmt.Errorf("%w: %w", s.unanswered, err)
	}
	return fmt.Errorf("%s: %w", s.name, err)
}

// parseHandshake parses a datagram outside any session.
func parseHandshake(b []byte) (packet, answer, error) {
	p, err := parsePacket(b)
	if err != nil {
		return p, answer{}, err
	}
	if p.sessionID != 0 {
		return p, answer{}, errMalformed
	}
	a, err := parseAnswer(p.payload)
	return p, a, err
}

// plainDatagram builds a datagram outside any session.
func plainDatagram(payloadType byte, payload []byte) []byte {
	return append(appendHeader(nil, payloadType, 0, 0, len(payload)), payload...)
}

// nextTag is a random tag that this exchange did not use recently, so that the
// BMC's answer to a refusal is not mistaken for its answer to a step.
func (x *exchange) nextTag() byte {
	if x.tags == 255 {
		x.tagged, x.tags = [256]bool{}, 0
	}
	for {
		var b [1]byte
		rand.Read(b[:])
		if t := b[0]; !x.tagged[t] {
			x.tagged[t] = true
			x.tags++
			return t
		}
	}
}

// randomID is a session id; zero means none, so it is never zero.
func randomID() uint32 {
	for {
		var b [4]byte
		rand.Read(b[:])
		if v := binary.LittleEndian.Uint32(b[:]); v != 0 {
			return v
		}
	}
}
