package login

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is where fenced-login listens: ListenSequentialPacket= of fenced-login.socket.
const Socket = "/run/fenced-login.sock"

// network is a unix socket that keeps messages apart.
const network = "unixpacket"

// patience is how long an answer of fenced-login is waited for, which systemd may have to start.
const patience = 3 * time.Second

// The answers: one of these words, then what belongs to it.
const (
	answerLogin  = "login"  // and the uid
	answerNone   = "none"   // the process belongs to no login
	answerUnkept = "unkept" // this kernel keeps no login uids
	answerUnread = "unread" // and why
)

// maxAnswer bounds an answer.
const maxAnswer = 512

// ErrNoAnswer is that fenced-login cannot be asked, or does not answer in time.
var ErrNoAnswer = errors.New("fenced-login gives no answer (systemctl status fenced-login.socket fenced-login.service)")

// Ask has fenced-login read what UID reads. It takes three seconds at most.
func (p *Process) Ask(socket string) (uid uint32, ok bool, err error) {
	text, err := p.ask(socket)
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case answerLogin:
		n, err := strconv.ParseUint(rest, 10, 32)
		if err == nil && n != noLogin {
			return uint32(n), true, nil
		}
	case answerNone:
		if rest == "" {
			return 0, false, nil
		}
	case answerUnkept:
		if rest == "" {
			return 0, false, ErrNotKept
		}
	case answerUnread:
		return 0, false, fmt.Errorf("fenced-login: %q", rest)
	}
	return 0, false, fmt.Errorf("%w: its answer is %q", ErrNoAnswer, text)
}

// ask sends the pidfd and receives one message.
func (p *Process) ask(socket string) (string, error) {
	end := time.Now().Add(patience)
	dialer := net.Dialer{Deadline: end}
	c, err := dialer.Dial(network, socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(end); err != nil {
		return "", err
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return "", fmt.Errorf("a connection over %s passes no descriptor", c.LocalAddr().Network())
	}
	err = p.use(func(pidfd int) error {
		_, _, err := uc.WriteMsgUnix([]byte("?"), unix.UnixRights(pidfd), nil)
		return err
	})
	if err != nil {
		return "", err
	}
	answer := make([]byte, maxAnswer)
	n, err := uc.Read(answer)
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return string(answer[:n]), err
}
