package power

import (
	"bufio"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha1" // that of cipher suite 3
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/power"
)

// The tools of a worker that isolates many hosts at once; every other one does so with each host by itself.
const (
	toolActors = "fenced, many"
	toolFloor  = "the floor"
)

func (j job) buildMany() (performer, error) {
	switch j.Tool {
	case toolActors:
		return crowdOf(j.Many, j.Hung), nil
	case toolFloor:
		return floor(j), nil
	}
	var p peers
	for _, one := range j.Many {
		one.Tool = j.Tool
		t, err := tools[j.Tool](one)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", j.Tool, err)
		}
		p = append(p, t)
	}
	return p, nil
}

// crowd is many hosts, each with a BMC of its own. The first of them have BMCs that hang.
type crowd struct {
	hosts []bmc.Host
	hung  int
}

func crowdOf(jobs []job, hung int) *crowd {
	c := &crowd{hung: hung}
	for i, j := range jobs {
		c.hosts = append(c.hosts, bmc.Host{Name: fmt.Sprintf("host-%d", i), Levels: []bmc.Level{{Devices: []bmc.Device{j.device()}}}})
	}
	return c
}

// perform isolates all hosts, whatever it is told.
func (c *crowd) perform(ctx context.Context, _ act) (time.Duration, error) {
	return c.each(ctx, isolate)
}

// each does work on all hosts at once, through actors as fenced's runs do. It gives
// the time until the last BMC that answers was done with: the others are given up
// then.
func (c *crowd) each(ctx context.Context, work func(context.Context, *power.Session) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	sessions, err := c.open()
	defer closeAll(sessions)
	if err != nil {
		return 0, err
	}
	errs := make([]error, len(sessions))
	var answering, all sync.WaitGroup
	began := time.Now()
	for i, s := range sessions {
		do := all.Go
		if i >= c.hung {
			do = answering.Go
		}
		do(func() { errs[i] = work(ctx, s) })
	}
	answering.Wait()
	took := time.Since(began)
	cancel() // nobody waits for a hung BMC
	all.Wait()
	for i, err := range errs {
		if answers := i >= c.hung; answers != (err == nil) {
			return took, fmt.Errorf("%s, whose BMC answers: %t: %w", c.hosts[i].Name, answers, err)
		}
	}
	return took, nil
}

// open opens all hosts; nothing is sent yet.
func (c *crowd) open() (all []*power.Session, err error) {
	actors := power.NewActors(open)
	for _, h := range c.hosts {
		s, err := power.Open(actors.Urgent(), h, 0, power.ReadTiming{ReadTimeout: timing.ReadTimeout, OffReadSpacing: spacing})
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
}

func closeAll(sessions []*power.Session) {
	var wait sync.WaitGroup
	for _, s := range sessions {
		wait.Go(func() { s.Close(context.Background()) })
	}
	wait.Wait()
}

func readOn(ctx context.Context, s *power.Session) error {
	r, err := s.Read(ctx)
	if err == nil && r.State != bmc.On {
		err = fmt.Errorf("the host reads %s", r.State)
	}
	return err
}

// again is when a run looks again at a BMC that did not answer.
const again = time.Second

// isolate reads, switches off and proves it, as a run does: what fails is tried again.
func isolate(ctx context.Context, s *power.Session) error {
	for {
		r, err := s.Read(ctx)
		next := s.Proof.NextRead(time.Now())
		switch accepted := s.Accepted.OffAccepted(); {
		case err == nil && !accepted:
			next, err = time.Now(), s.Send(ctx, bmc.CommandOff)
		case accepted && s.Proof.Proven(time.Now()):
			return nil
		case r.State != bmc.Off:
			next = time.Now().Add(again)
		}
		if err != nil {
			next = time.Now().Add(again)
		}
		if waited := until(ctx, next); waited != nil {
			return errors.Join(waited, err)
		}
	}
}

// peers are tools of others, each with a BMC of its own.
type peers []tool

func (p peers) perform(ctx context.Context, _ act) (time.Duration, error) {
	var g errgroup.Group
	for _, t := range p {
		g.Go(func() error { return prove(ctx, t) })
	}
	return 0, g.Wait()
}

// floor is what so many proofs cost at least: the connections, the requests or datagrams, and the ciphers, of which
// nothing is read but what the next request needs.
type floor job

func (f floor) perform(ctx context.Context, _ act) (time.Duration, error) {
	g, ctx := errgroup.WithContext(ctx)
	for _, j := range f.Many {
		g.Go(func() error {
			if f.Exchange != nil {
				return j.exchange(ctx, f.Exchange)
			}
			return j.request(ctx)
		})
	}
	return 0, g.Wait()
}

// request makes the requests of a proof over Redfish on one connection, whose certificate is checked as fenced does.
func (j job) request(ctx context.Context) error {
	pem, err := os.ReadFile(j.CA)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	d := tls.Dialer{Config: &tls.Config{RootCAs: pool}}
	host := net.JoinHostPort(j.Host, strconv.Itoa(j.Port))
	conn, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return err
	}
	defer conn.Close()
	answers, token := bufio.NewReader(conn), ""
	ask := func(method, path, body string) (http.Header, error) {
		if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nX-Auth-Token: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			method, path, host, token, len(body), body); err != nil {
			return nil, err
		}
		a, err := http.ReadResponse(answers, nil)
		if err != nil {
			return nil, err
		}
		defer a.Body.Close()
		if a.StatusCode >= http.StatusMultipleChoices {
			return nil, fmt.Errorf("%s %s: %s", method, path, a.Status)
		}
		_, err = io.Copy(io.Discard, a.Body)
		return a.Header, err
	}
	h, err := ask(http.MethodPost, "/redfish/v1/SessionService/Sessions", `{"UserName":"`+user+`","Password":"`+password+`"}`)
	if err != nil {
		return err
	}
	token = h.Get("X-Auth-Token")
	session, err := url.Parse(h.Get("Location"))
	if err != nil {
		return err
	}
	for _, r := range [][3]string{
		{http.MethodGet, j.System},
		{http.MethodPost, j.System + "/Actions/ComputerSystem.Reset", `{"ResetType":"ForceOff"}`},
		{http.MethodGet, j.System}, {http.MethodGet, j.System},
		{http.MethodDelete, session.Path},
	} {
		if _, err := ask(r[0], r[1], r[2]); err != nil {
			return err
		}
	}
	return nil
}

// exchange is a datagram of a proof over IPMI, and its answer. Sealed ones are encrypted and authenticated.
type exchange struct {
	Asked, Answer []byte
	Sealed        bool
}

// HMACs of a login: over RAKP 2, 3 and 4, and for the session's three keys.
const loginHMACs = 6

// exchange sends the datagrams to somebody who answers them, and does what cipher suite 3 asks for.
func (j job) exchange(ctx context.Context, all []exchange) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(j.Host, strconv.Itoa(j.Port)))
	if err != nil {
		return err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end) // a lost datagram ends the measurement
	}
	key, buf := make([]byte, sha1.Size), make([]byte, 1024)
	sign := func(b []byte) {
		h := hmac.New(sha1.New, key)
		h.Write(b)
		h.Sum(nil)
	}
	for range loginHMACs {
		sign(all[0].Asked)
	}
	block, err := aes.NewCipher(key[:aes.BlockSize])
	if err != nil {
		return err
	}
	var errs []error
	for i, e := range all {
		if e.Sealed {
			plain := buf[:2*aes.BlockSize]
			cipher.NewCBCEncrypter(block, key[:aes.BlockSize]).CryptBlocks(plain, plain)
			sign(e.Asked)
		}
		e.Asked[0] = byte(i) // which it is
		if _, err := conn.Write(e.Asked); err != nil {
			return err
		}
		n, err := conn.Read(buf)
		if err != nil {
			return err
		}
		if n != len(e.Answer) {
			errs = append(errs, fmt.Errorf("answer %d has %d bytes, not %d", i, n, len(e.Answer)))
		}
		if e.Sealed {
			sign(buf[:n])
			cipher.NewCBCDecrypter(block, key[:aes.BlockSize]).CryptBlocks(buf[:2*aes.BlockSize], buf[:2*aes.BlockSize])
		}
	}
	return errors.Join(errs...)
}
