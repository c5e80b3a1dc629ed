package ipmi

import (
	"context"
	"crypto/aes"
	"crypto/rand"
	"encoding/binary"
	"time"
)

const (
	// A command unanswered this often means that the BMC no longer knows the
	// session: it drops what it cannot authenticate.
	commandTries = 3
	// BMCs end a session after 60 s of silence, some sooner. // bmc.md 7.3
	idleLimit = 20 * time.Second
)

// session is one open RMCP+ session.
type session struct {
	*wire
	seal             sealer
	consoleID, bmcID uint32
	guid             [16]byte
	privilege        byte
	raised           bool // privilege was set; a session starts at USER
	sequence         uint32
	rqSeq            byte
	owed             uint64 // bit n: a reply to a command with rqSeq n may still come
	window           window
	used             time.Time // when the BMC last answered
	serial           uint64    // differs between any two sessions of this process
}

// command sends one command until it is answered. sent is called before each
// datagram. A repeated command has a new session sequence number and a new
// initialisation vector, because a BMC drops duplicates, but the same rqSeq.
func (s *session) command(ctx context.Context, r request, sent func()) (reply, error) {
	if !s.number() {
		return reply{}, errSilent
	}
	var answer reply
	tries, answered := 0, 0
	build := func() []byte {
		sent()
		tries++
		return s.datagram(r)
	}
	defer func() {
		if tries > answered {
			s.owed |= 1 << s.rqSeq
		}
	}()
	take := func(b []byte) bool {
		message, n, err := s.seal.open(b, s.consoleID)
		if err != nil || !s.window.take(n) {
			return false
		}
		answer, err = r.decodeReply(message, s.rqSeq)
		return err == nil
	}
	if err := s.ask(ctx, commandTries, build, take); err != nil {
		return reply{}, err
	}
	answered = 1
	s.used = time.Now()
	return answer, nil
}

// number picks the rqSeq of the next command. There are only 64, and a reply
// that was held back tells nothing of its age: a number to which one may still
// come is not used again, or an old Off could answer a new question. // I1
func (s *session) number() bool {
	for range 64 {
		s.rqSeq = (s.rqSeq + 1) & 0x3f
		if s.owed>>s.rqSeq&1 == 0 {
			return true
		}
	}
	return false // the caller opens another session
}

// datagram seals r for its next try.
func (s *session) datagram(r request) []byte {
	s.sequence++
	if s.sequence == 0 {
		s.sequence++ // 0 is for datagrams outside sessions
	}
	var iv [aes.BlockSize]byte
	rand.Read(iv[:])
	return s.seal.seal(s.bmcID, s.sequence, iv, r.encode(s.rqSeq))
}

// abandon ends a session that will not be used again, without waiting: BMCs
// have as few as four. // bmc.md 5
func (s *session) abandon() {
	s.tell(s.datagram(s.closing()))
	s.wire.close()
}

func (s *session) closing() request {
	return request{netFn: netFnApp, cmd: cmdCloseSession, data: binary.LittleEndian.AppendUint32(nil, s.bmcID)}
}
