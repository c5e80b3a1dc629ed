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

// How long to wait for an answer before the request is sent again. BMCs are slow:
// a first answer after a second is normal. The waits double up to lastWait.
const (
	firstWait = 250 * time.Millisecond
	lastWait  = 2 * time.Second
	// longestWait is the longest wait for a BMC that was measured to be slow.
	longestWait = 6 * time.Second
	// A closed port or a missing route is reported at once, and may be temporary
	// while a BMC restarts. So it is retried netTries times, netPause apart.
	netTries = 3
	netPause = 100 * time.Millisecond
)

var (
	errNoAnswer = errors.New("no answer") // no try was answered
	errNoTry    = errors.New("no further try")
)

// wire is a connected UDP socket: the kernel drops datagrams of other senders and
// reports a closed port.
type wire struct {
	conn net.Conn
	buf  [maxDatagram]byte
	took time.Duration // how long the last answer of the handshake took
}

// waitAfter is how long to wait for an answer, after one that took this long. A
// BMC that needs one second gets two before the request is sent again.
func waitAfter(took time.Duration) time.Duration { return min(max(firstWait, 2*took), longestWait) }

// endpoint is the address of a BMC, and the networks where it may be.
type endpoint struct {
	addr     string
	networks *bmc.Networks
}

func (p endpoint) dial(ctx context.Context) (*wire, error) {
	d := net.Dialer{Control: p.networks.Control}
	conn, err := d.DialContext(ctx, "udp", p.addr)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return &wire{conn: conn}, nil
}

// ask sends the datagram from build, rebuilt for each try, until take accepts a
// datagram as the answer, or build returns nil: no further try is of use. tries 0
// means as many as ctx allows. It waits for wait before the second try.
func (w *wire) ask(ctx context.Context, tries int, wait time.Duration, build func() []byte, take func([]byte) bool) error {
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for try, broken := 1, 0; ; try++ {
		err := w.once(ctx, build, time.Now().Add(jitter(wait)), take)
		switch {
		case err == nil:
			return nil
		case bmc.Over(ctx, time.Now()) != nil:
			return fmt.Errorf("no answer: %w", bmc.Over(ctx, time.Now())) // errNoAnswer would be retried
		case errors.Is(err, errNoTry):
			return errNoAnswer
		case errors.Is(err, errNoAnswer):
			wait = longer(wait)
		default:
			if broken++; broken == netTries {
				return err
			}
			if err := sleep(ctx, netPause); err != nil {
				return err
			}
		}
		if try == tries {
			return errNoAnswer
		}
	}
}

// longer is the wait after one in vain.
func longer(wait time.Duration) time.Duration {
	if wait > lastWait { // the BMC is known or suspected to be slow
		return min(2*wait, longestWait)
	}
	return min(2*wait, lastWait)
}

// once sends one datagram and receives until end.
func (w *wire) once(ctx context.Context, build func() []byte, end time.Time, take func([]byte) bool) error {
	if err := bmc.Over(ctx, time.Now()); err != nil {
		return err // send nothing after the caller has returned
	}
	datagram := build()
	if datagram == nil {
		return errNoTry
	}
	if _, err := w.conn.Write(datagram); err != nil {
		return err
	}
	return w.receive(ctx, end, take)
}

// receive receives until take accepts a datagram, or until end.
func (w *wire) receive(ctx context.Context, end time.Time, take func([]byte) bool) error {
	for {
		if err := w.conn.SetReadDeadline(end); err != nil {
			return err
		}
		// ctx may have ended just before, and its deadline was overwritten.
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := w.conn.Read(w.buf[:])
		switch {
		case err == nil && take(w.buf[:n]):
			return nil
		case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
			// Dropped, or the late end of an earlier operation's ctx. Check the time in
			// both cases, or a flood of datagrams could keep us here.
			if !time.Now().Before(end) {
				return errNoAnswer
			}
		default:
			return err
		}
	}
}

// sendOnly sends one datagram and ignores errors.
func (w *wire) sendOnly(datagram []byte) { _, _ = w.conn.Write(datagram) }

func (w *wire) close() { _ = w.conn.Close() } // nothing is buffered in a UDP socket

// jitter spreads d by 20 % so that clients do not send in step.
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
