package login

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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

// askTime is how long one who connects may take to ask.
const askTime = time.Second

// Serve answers on ln, one after another, until nobody has asked for idle. Who may connect is for the mode of the socket to say.
func Serve(ln *net.UnixListener, idle time.Duration) error {
	for {
		if err := ln.SetDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		c, err := ln.AcceptUnix()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		answer(c)
	}
}

// answer answers one question. Who does not wait for the answer gets none.
func answer(c *net.UnixConn) {
	defer c.Close()
	if c.SetDeadline(time.Now().Add(askTime)) != nil {
		return
	}
	p, err := receive(c)
	text := ""
	if err == nil {
		text, err = p.tell()
	}
	if err != nil {
		text = answerUnread + " " + err.Error()
	}
	_, _ = c.Write([]byte(text[:min(len(text), maxAnswer)]))
}

// tell is what is answered about a process, and lets it go.
func (p *Process) tell() (string, error) {
	defer p.Close()
	uid, ok, err := p.UID()
	switch {
	case errors.Is(err, ErrNotKept):
		return answerUnkept, nil
	case err != nil:
		return "", err
	case !ok:
		return answerNone, nil
	default:
		return fmt.Sprintf("%s %d", answerLogin, uid), nil
	}
}

// receive takes the one descriptor that a question passes.
func receive(c *net.UnixConn) (*Process, error) {
	passed := make([]byte, unix.CmsgSpace(4*8)) // more than one would be seen, and closed
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 16), passed)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(passed[:n])
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		list, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, err
		}
		fds = append(fds, list...)
	}
	if len(fds) != 1 {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, fmt.Errorf("%d descriptors are passed, not 1", len(fds))
	}
	return held(fds[0]), nil
}
