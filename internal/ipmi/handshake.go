package ipmi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
)

// A lost RAKP 1 is sent again this often; then the session id may be unknown.
const rakp1Tries = 3

// account is who asks for sessions, and how.
type account struct {
	user, password string
	privilege      byte
}

// handshake opens a session over a socket of its own with one cipher suite
// (section 13.15). On an error nothing is left behind as far as that is up to us.
func handshake(ctx context.Context, p place, a account, s suite) (*session, error) {
	w, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	x := newExchange(a, s)
	sess, err := x.run(ctx, w)
	if err != nil {
		x.leave(w, err)
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

// run exchanges the six messages. RAKP 3 is sent once: the BMC forgets the
// handshake when it answers, so after a lost RAKP 4 all begins anew.
func (x *exchange) run(ctx context.Context, w *wire) (*session, error) {
	if err := x.ask(ctx, w, 0, x.opening()); err != nil {
		return nil, err
	}
	if err := x.ask(ctx, w, rakp1Tries, x.hello()); err != nil {
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
	x.begun = sess
	if err := x.ask(ctx, w, 1, proof); err != nil {
		return nil, err
	}
	return sess, nil
}

func (x *exchange) opening() step {
	return step{name: "open session", request: payloadOpenRequest, response: payloadOpenResponse,
		build: x.openRequest, take: x.takeOpen, anyTry: true}
}

func (x *exchange) hello() step {
	return step{name: "RAKP 1", request: payloadRAKP1, response: payloadRAKP2, build: x.rakp1, take: x.takeRAKP2}
}

// step is one message of the handshake and its answer.
type step struct {
	name              string
	request, response byte
	build             func(tag byte) []byte
	take              func(rest []byte) error
	anyTry            bool // an answer to an earlier try is as good
}

// ask sends one message and takes its answer. Each try has a tag of its own, and
// of RAKP 1 and 3 only the newest is answered to us: after a repeated RAKP 1 a BMC
// holds the random number of its last answer, not of its first.
func (x *exchange) ask(ctx context.Context, w *wire, tries int, s step) error {
	var tag byte
	var tried [256]bool // the tags of all tries
	var verdict error
	build := func() []byte {
		tag = x.nextTag()
		tried[tag] = true
		return plain(s.request, s.build(tag))
	}
	take := func(b []byte) bool {
		p, a, err := parseHandshake(b)
		if err == nil {
			x.refuseSurplus(w, p, a)
		}
		if err != nil || p.payloadType != s.response {
			return false
		}
		if newest := a.tag == tag; !x.ours(a) || !newest && !(s.anyTry && tried[a.tag]) {
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

// parseHandshake takes a datagram outside any session apart.
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

// plain is a datagram outside any session.
func plain(payloadType byte, payload []byte) []byte {
	return append(appendHeader(nil, payloadType, 0, 0, len(payload)), payload...)
}

// nextTag is a random tag that this exchange did not use lately: what a BMC says
// to a refusal must not be taken for its answer to a step.
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

// randomID is a session id: not zero, which means none.
func randomID() uint32 {
	for {
		var b [4]byte
		rand.Read(b[:])
		if v := binary.LittleEndian.Uint32(b[:]); v != 0 {
			return v
		}
	}
}
