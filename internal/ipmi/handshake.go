package ipmi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
)

// rakp1Tries is how often RAKP 1 is sent; then the BMC may have dropped the
// session id.
const rakp1Tries = 3

// account is the login for sessions, and its privilege.
type account struct {
	user, password string
	privilege      byte
}

// handshake opens a session on a new socket with one cipher suite (section
// 13.15). On an error it leaves no session on the BMC, as far as possible.
func handshake(ctx context.Context, p endpoint, a account, s suite) (*session, error) {
	w, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	x := newExchange(a, s)
	sess, err := x.run(ctx, w)
	if err != nil {
		x.cleanUp(w, err)
		return nil, err
	}
	sess.privilege = a.privilege
	return sess, nil
}

func newExchange(a account, s suite) *exchange {
	x := &exchange{suite: s, user: a.user, key: []byte(a.password), role: a.privilege | nameOnly, consoleID: randomID()}
	rand.Read(x.consoleRnd[:])
	return x
}

// run exchanges the six messages. RAKP 3 is sent only once: the BMC forgets the
// handshake when it answers, so after a lost RAKP 4 a new handshake is needed.
func (x *exchange) run(ctx context.Context, w *wire) (*session, error) {
	if err := x.ask(ctx, w, 0, x.openStep()); err != nil {
		return nil, err
	}
	if err := x.ask(ctx, w, rakp1Tries, x.rakp1Step()); err != nil {
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
	if err := x.ask(ctx, w, 1, proof); err != nil {
		return nil, err
	}
	return sess, nil
}

func (x *exchange) openStep() step {
	return step{name: "open session", request: payloadOpenRequest, response: payloadOpenResponse,
		build: x.openRequest, take: x.acceptOpen, anyTry: true}
}

func (x *exchange) rakp1Step() step {
	return step{name: "RAKP 1", request: payloadRAKP1, response: payloadRAKP2, build: x.rakp1, take: x.acceptRAKP2}
}

// step is one message of the handshake and its answer.
type step struct {
	name              string
	request, response byte
	build             func(tag byte) []byte
	take              func(rest []byte) error
	anyTry            bool // an answer to an earlier try is accepted
}

// ask sends one message and accepts its answer. Each try has its own tag. For
// RAKP 1 and 3 only the answer to the newest try counts: after a repeated RAKP 1
// a BMC keeps the random number of its last answer, not of its first.
func (x *exchange) ask(ctx context.Context, w *wire, tries int, s step) error {
	var tag byte
	var tried [256]bool // tags of all tries
	var verdict error
	build := func() []byte {
		tag = x.nextTag()
		tried[tag] = true
		return plainDatagram(s.request, s.build(tag))
	}
	take := func(b []byte) bool {
		p, a, err := parseHandshake(b)
		if err == nil {
			x.refuseSurplus(w, p, a)
		}
		if err != nil || p.payloadType != s.response {
			return false
		}
		if newest := a.tag == tag; !x.isOurs(a) || !newest && !(s.anyTry && tried[a.tag]) {
			return false
		}
		if a.status != 0 {
			verdict = &statusError{message: s.name, status: a.status}
			return true
		}
		verdict = s.take(a.rest)
		return !errors.Is(verdict, errMalformed)
	}
	if err := w.ask(ctx, tries, build, take); err != nil {
		return err
	}
	return verdict
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
