package ipmi

import (
	"context"
	"crypto/aes"
	"crypto/rand"
	"encoding/binary"
	"time"
)

// BMCs end a session after 60 s without a command, some earlier.
const idleLimit = 20 * time.Second

// session is one open RMCP+ session.
type session struct {
	*wire
	seal             sealer
	consoleID, bmcID uint32
	guid             [16]byte
	privilege        byte
	privilegeSet     bool // the privilege was set; a session starts with USER
	sequence         uint32
	rqSeq            byte
	outstanding      uint64 // bit n is set if a reply to a command with rqSeq n may still come
	window           window
	lastAnswer       time.Time // time of the BMC's last answer
	times            commandTimes
	serial           uint64 // unique in this process
}

// command sends one command until it is answered. It calls sent before each
// datagram. A repeated command has a new session sequence number and a new
// initialisation vector, because a BMC drops duplicates, but the same rqSeq. If
// keep is set, it tries until ctx ends; else it gives the session up before.
func (s *session) command(ctx context.Context, r request, keep bool, sent func()) (reply, error) {
	if !s.number() {
		return reply{}, errNoAnswer
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
			s.outstanding |= 1 << s.rqSeq
		}
	}()
	take := func(b []byte) bool {
		message, n, err := s.seal.open(b, s.consoleID)
		if err != nil || !s.window.accept(n) {
			return false
		}
		answer, err = r.decodeReply(message, s.rqSeq)
		return err == nil
	}
	limit, wait := s.times.patience(ctx, r)
	if keep {
		limit = 0
	}
	begun := time.Now()
	if err := s.ask(ctx, limit, wait, build, take); err != nil {
		return reply{}, err
	}
	answered = 1
	s.lastAnswer = time.Now()
	s.times.record(r, s.lastAnswer.Sub(begun))
	return answer, nil
}

// number chooses the rqSeq of the next command. There are only 64, and a delayed
// reply does not show its age. So a number is not reused while a reply to it may
// still come, or an old Off could answer a new request. // I1
func (s *session) number() bool {
	for range 64 {
		s.rqSeq = (s.rqSeq + 1) & 0x3f
		if s.outstanding>>s.rqSeq&1 == 0 {
			return true
		}
	}
	return false // the caller opens another session
}

// datagram seals r for its next try.
func (s *session) datagram(r request) []byte {
	s.sequence++
	if s.sequence == 0 {
		s.sequence++ // zero is for datagrams outside sessions
	}
	var iv [aes.BlockSize]byte
	rand.Read(iv[:])
	return s.seal.seal(s.bmcID, s.sequence, iv, r.encode(s.rqSeq))
}

// abandon ends a session that will not be used again, without waiting: BMCs have
// as few as four.
func (s *session) abandon() {
	s.sendOnly(s.datagram(s.closing()))
	s.wire.close()
}

func (s *session) closing() request {
	return request{netFn: netFnApp, cmd: cmdCloseSession, data: binary.LittleEndian.AppendUint32(nil, s.bmcID)}
}

// Some BMCs need seconds for a command, and work on one after the other. Such a BMC
// also works on every repeat of a command, and answers the next command even later.
// So a command is repeated soon only if the BMC has answered it soon before.
const (
	// newCommandWait is how long to wait for the answer to a command that this session
	// has not measured yet.
	newCommandWait = 3 * time.Second
	// After this many tries without an answer, the BMC no longer knows the session: it
	// drops what it cannot authenticate. One wait for a command that was not measured is
	// as long.
	commandTries    = 3
	newCommandTries = 1
)

// commandTimes is how long the BMC took for each command in one session.
type commandTimes struct {
	took    map[commandID]time.Duration // for the last answer to each
	slowest time.Duration
}

// commandID is a command without its data.
type commandID struct{ netFn, cmd byte }

// record keeps how long the answer to r took, from its first try on.
func (c *commandTimes) record(r request, took time.Duration) {
	if c.took == nil {
		c.took = map[commandID]time.Duration{}
	}
	c.took[commandID{r.netFn, r.cmd}] = took
	c.slowest = max(c.slowest, took)
}

// patience is how often to send r in a session that the BMC may have forgotten, and how
// long to wait for the first answer. A command that was not measured may take half of the
// time that is left, so that one lost datagram does not end the operation.
func (c *commandTimes) patience(ctx context.Context, r request) (tries int, wait time.Duration) {
	if took, measured := c.took[commandID{r.netFn, r.cmd}]; measured {
		return commandTries, waitAfter(took)
	}
	wait = max(newCommandWait, waitAfter(c.slowest))
	if end, ends := ctx.Deadline(); ends {
		wait = max(firstWait, min(wait, time.Until(end)/2))
	}
	return newCommandTries, wait
}
