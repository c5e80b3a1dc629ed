package ipmi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// How long to wait for an answer before the question is sent again. BMCs are
// slow: a first answer after a second is normal.
const (
	firstWait = 250 * time.Millisecond
	lastWait  = 2 * time.Second
	// A closed port or a missing route is reported at once, and may be gone in a
	// moment when a BMC restarts: netTries times netPause apart, then give up.
	netTries = 3
	netPause = 100 * time.Millisecond
)

// errSilent says that every try went unanswered.
var errSilent = errors.New("no answer")

// wire is a connected UDP socket: the kernel drops datagrams of other senders
// and reports a closed port.
type wire struct {
	conn net.Conn
	buf  [maxDatagram]byte
	// took is how long the last answer took. A BMC that needs a second for an
	// answer gets two for the next, before it is asked again.
	took time.Duration
}

// place is where a BMC is said to be, and where it may be.
type place struct {
	addr     string
	networks *bmc.Networks
}

func (p place) dial(ctx context.Context) (*wire, error) {
	d := net.Dialer{Control: p.networks.Control}
	conn, err := d.DialContext(ctx, "udp", p.addr)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return &wire{conn: conn}, nil
}

// ask sends what build makes, anew for each try, until take accepts a datagram
// as the answer. tries 0 is as many as ctx allows.
func (w *wire) ask(ctx context.Context, tries int, build func() []byte, take func([]byte) bool) error {
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	begun := time.Now()
	wait := min(max(firstWait, 2*w.took), lastWait)
	for try, broken := 1, 0; ; try++ {
		err := w.once(ctx, build, time.Now().Add(jitter(wait)), take)
		switch {
		case err == nil:
			w.took = time.Since(begun)
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("no answer: %w", ctx.Err()) // errSilent would be tried again
		case errors.Is(err, errSilent):
			wait = min(2*wait, lastWait)
		default:
			if broken++; broken == netTries {
				return err
			}
			if err := sleep(ctx, netPause); err != nil {
				return err
			}
		}
		if try == tries {
			return errSilent
		}
	}
}

// once sends one datagram and listens until end.
func (w *wire) once(ctx context.Context, build func() []byte, end time.Time, take func([]byte) bool) error {
	if err := ctx.Err(); err != nil {
		return err // nothing may be sent for a caller that has gone
	}
	if _, err := w.conn.Write(build()); err != nil {
		return err
	}
	for {
		if err := w.conn.SetReadDeadline(end); err != nil {
			return err
		}
		// ctx may have ended just before, and its deadline been overwritten.
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := w.conn.Read(w.buf[:])
		switch {
		case err == nil && take(w.buf[:n]):
			return nil
		case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
			// Dropped, or the late end of an earlier operation's ctx. The clock
			// is asked in both cases: a flood of datagrams must not hold us.
			if !time.Now().Before(end) {
				return errSilent
			}
		default:
			return err
		}
	}
}

// tell sends one datagram and does not care for its fate.
func (w *wire) tell(datagram []byte) { _, _ = w.conn.Write(datagram) }

func (w *wire) close() { _ = w.conn.Close() } // nothing is buffered in a UDP socket

// jitter spreads d by 20 % so that many clients do not ask in step.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
