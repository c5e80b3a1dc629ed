// Command fenced-login tells fenced who logged in and became the user that gives an order. The sandbox of fenced hides the processes
// of others; this program sees them, and holds no secret, no state and no network. systemd starts it when fenced asks, with the socket.
package main

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/fenced/fenced/internal/login"
)

// idle is how long it stays for the next question.
const idle = time.Minute

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "fenced-login: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	passed, err := activation.Listeners()
	if err != nil {
		return fmt.Errorf("take the socket that systemd passes: %w", err)
	}
	if len(passed) != 1 {
		return fmt.Errorf("systemd passes %d sockets, not 1: it is started by fenced-login.socket, and by nothing else", len(passed))
	}
	ln, ok := passed[0].(*net.UnixListener)
	if !ok {
		return fmt.Errorf("systemd passes a socket of %s; make ListenSequentialPacket= of fenced-login.socket a path", passed[0].Addr().Network())
	}
	return login.Serve(ln, idle)
}
