package login

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

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
