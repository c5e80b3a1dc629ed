package power

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

// fleet is many hosts, each behind a BMC of its own in this process.
type fleet []metal

// metal is a host that can be switched on behind the back of its BMC, which can hang.
type metal interface {
	job() (job, error)
	on() error
	off() bool
	hang(bool) error
	stop()
}

// direct is a BMC of IPMI without a relay.
type direct struct{ *ipmisim.GoBMC }

func (d direct) job() (job, error)    { return jobAt(d.Addr()) }
func (d direct) on() error            { return d.SetPower(true) }
func (d direct) off() bool            { return !d.Power() }
func (d direct) hang(hang bool) error { return d.Hang(hang) }
func (d direct) stop()                { d.Stop() }

// hang lets the kernel take connections that nobody reads, as on a BMC whose service is stuck.
func (s redfishSimulator) hang(hang bool) error {
	s.Faults(func(f *redfishsim.Faults) { f.HalfOpen = hang })
	return nil
}

type starter func(ctx context.Context, number int) (metal, error)

func directIPMI(ctx context.Context, _ int) (metal, error) {
	b, err := ipmisim.StartGo(ctx, ipmisim.Options{Suites: []int{3}})
	return direct{b}, err
}

func startFleet(ctx context.Context, size int, start starter) (fleet, []job, error) {
	var f fleet
	var jobs []job
	for i := range size {
		b, err := start(ctx, i)
		if err != nil {
			f.stop()
			return nil, nil, err
		}
		f = append(f, b)
		j, err := b.job()
		if err != nil {
			f.stop()
			return nil, nil, err
		}
		jobs = append(jobs, j)
	}
	return f, jobs, nil
}

func (f fleet) stop() {
	for _, b := range f {
		b.stop()
	}
}

// hang makes the first BMCs hang, or answer again.
func (f fleet) hang(first int, hang bool) error {
	var errs []error
	for _, b := range f[:first] {
		errs = append(errs, b.hang(hang))
	}
	return errors.Join(errs...)
}

// on switches all hosts on.
func (f fleet) on() error {
	var errs []error
	for _, b := range f {
		errs = append(errs, b.on())
	}
	return errors.Join(errs...)
}

// isolation is what it takes to isolate many hosts at the same moment, over one protocol.
type isolation struct {
	what        string
	peer        string
	hosts, hung int // those whose BMCs answer, and those whose BMCs do not
	// floor is what so many proofs take without fenced; alone and beside are fenced's for those that answer, without
	// the others and beside them; other is the peer's.
	floor, alone, beside, other share
}

// share is what a client in a process of its own used.
type share struct {
	wall time.Duration // until the last host whose BMC answers was off
	cpu  time.Duration // for each of them
	grew int64         // bytes of memory, at most
}

// peerHosts are how many hosts a peer isolates: many peers start a program at each step, and a thousand of them would
// take too long.
const peerHosts = 16

// kind is a protocol, and what people use for it.
type kind struct {
	what, peer string
	start      starter
}

// rsaKeys is how many keys the BMCs share that have RSA: it takes minutes to make a thousand. Each BMC has a
// certificate of its own.
const rsaKeys = 4

// kinds are the protocols of BMCs, with the keys that they have.
func kinds() ([]kind, error) {
	var keys []crypto.Signer
	for range rsaKeys {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, fmt.Errorf("make a key of a BMC: %w", err)
		}
		keys = append(keys, k)
	}
	service := func(key crypto.Signer) (metal, error) {
		s, err := redfishsim.Start(redfishsim.Options{Key: key})
		return redfishSimulator{s}, err
	}
	return []kind{
		{"IPMI, suite 3", "ipmitool", directIPMI},
		{"Redfish, TLS 1.3, RSA 2048", "bmclib", func(_ context.Context, i int) (metal, error) { return service(keys[i%rsaKeys]) }},
		{"Redfish, TLS 1.3, ECDSA P-256", "bmclib", func(context.Context, int) (metal, error) {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				return nil, fmt.Errorf("make a key of a BMC: %w", err)
			}
			return service(key)
		}},
	}, nil
}

// measureMany measures all kinds, one after another.
func measureMany(ctx context.Context, size, samples int, tell func(string), c connect) (rows []isolation, err error) {
	all, err := kinds()
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		tell(fmt.Sprintf("%d hosts isolated at once, %s", size, k.what))
		row, err := k.measure(ctx, size, samples, c)
		if err != nil {
			return nil, fmt.Errorf("isolate %d hosts at once, %s: %w", size, k.what, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (k kind) measure(ctx context.Context, size, samples int, c connect) (isolation, error) {
	hung := size * hungOf10 / 10
	row := isolation{what: k.what, peer: k.peer, hosts: size - hung, hung: hung}
	f, jobs, err := startFleet(ctx, size, k.start)
	if err != nil {
		return row, err
	}
	defer f.stop()
	if err := f.hang(hung, true); err != nil {
		return row, err
	}
	bare := job{Tool: toolFloor, Many: jobs[hung:]}
	if jobs[0].System == "" {
		r, err := recordProof(ctx)
		if err != nil {
			return row, err
		}
		defer r.stop()
		if bare, err = r.floor(row.hosts); err != nil {
			return row, err
		}
	}
	for _, m := range []struct {
		job  job
		into *share
	}{
		{bare, &row.floor},
		{job{Tool: toolActors, Many: jobs[hung:]}, &row.alone},
		{job{Tool: toolActors, Many: jobs, Hung: hung}, &row.beside},
		{job{Tool: k.peer, Many: jobs[hung:][:min(peerHosts, row.hosts)]}, &row.other},
	} {
		var all []share
		for range samples {
			if err := f.on(); err != nil {
				return row, err
			}
			s, err := m.job.isolated(ctx, c)
			if err != nil {
				return row, fmt.Errorf("%s: %w", m.job.Tool, err)
			}
			all = append(all, s)
			for _, b := range f[hung:][:len(m.job.Many)-m.job.Hung] {
				if m.job.Exchange == nil && !b.off() {
					return row, fmt.Errorf("by %s a host was called off that is on", m.job.Tool)
				}
			}
		}
		slices.SortFunc(all, func(a, b share) int { return int(a.cpu - b.cpu) })
		*m.into = all[len(all)/2]
	}
	return row, nil
}

// isolated has a new worker isolate all hosts of a job.
func (j job) isolated(ctx context.Context, connect connect) (share, error) {
	c, err := j.employ(ctx, connect)
	if err != nil {
		return share{}, err
	}
	defer c.dismiss()
	o, err := c.order(actProof)
	return share{o.Wall, o.CPU / time.Duration(len(j.Many)-j.Hung), o.Grew}, err
}

// broken is every bound that r does not keep.
func (r isolation) broken() (all []string) {
	if ratio(r.beside.wall, r.alone.wall) > boundIsolateBeside {
		all = append(all, fmt.Sprintf("%s: an isolation beside %d hung BMCs took %s, and %s without them", r.what, r.hung, r.beside.wall, r.alone.wall))
	}
	return all
}

func printMany(w io.Writer, rows []isolation) {
	for i, r := range rows {
		if i == 0 {
			fmt.Fprintf(w, "\n%d hosts isolated at once, and beside %d whose BMCs hang; each client in a process of its own\n", r.hosts, r.hung)
			fmt.Fprintln(w, "\tCPU per proof\tmemory, over the start\toff and proof of all, the 3 s counted\tbound")
		}
		row := func(name string, s share, took, bound string) {
			fmt.Fprintf(w, "%s\t%.2f ms (%.3g)\t%.0f MiB\t%s\t%s\n", name, 1000*s.cpu.Seconds(), ratio(s.cpu, r.alone.cpu), float64(s.grew)/(1<<20), took, bound)
		}
		row(r.what+": fenced", r.alone, milli(r.alone.wall), "-")
		row("fenced, beside the hung", r.beside, fmt.Sprintf("%s (%.2f)", milli(r.beside.wall), ratio(r.beside.wall, r.alone.wall)),
			fmt.Sprintf("< %.1f of it: %s", boundIsolateBeside, verdict(len(r.broken()) == 0)))
		row("connections, requests and ciphers alone", r.floor, "-", "-")
		row(fmt.Sprintf("%s, %d hosts", r.peer, min(peerHosts, r.hosts)), r.other, milli(r.other.wall), "-")
	}
}

// recording is what one proof over IPMI sends and gets, and sockets that give the same answers again.
type recording struct {
	exchange []exchange
	sockets  []net.PacketConn
	serving  sync.WaitGroup
}

// answerers share the hosts of a floor, so that no buffer overflows.
const answerers = 64

// recordProof has fenced prove a host off through a relay, which sees all datagrams.
func recordProof(ctx context.Context) (*recording, error) {
	s, err := startGo(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	j, err := s.job()
	if err != nil {
		return nil, err
	}
	if _, err := crowdOf([]job{j}, 0).each(ctx, isolate); err != nil {
		return nil, err
	}
	r := &recording{}
	for _, d := range s.(*ipmiSimulator).relay.Seen() {
		if !d.FromBMC {
			r.exchange = append(r.exchange, exchange{Asked: d.Data, Sealed: d.Payload() == ipmisim.PayloadIPMI})
		} else if n := len(r.exchange); n > 0 {
			r.exchange[n-1].Answer = d.Data
		}
	}
	for range answerers {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			r.stop()
			return nil, fmt.Errorf("answer as a BMC: %w", err)
		}
		r.sockets = append(r.sockets, conn)
		r.serving.Go(func() { r.answer(conn) })
	}
	return r, nil
}

// answer answers each datagram, whose first byte says which it is.
func (r *recording) answer(conn net.PacketConn) {
	buf := make([]byte, 1024)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return // closed
		}
		if n > 0 && int(buf[0]) < len(r.exchange) {
			_, _ = conn.WriteTo(r.exchange[buf[0]].Answer, from) // what is lost ends the measurement
		}
	}
}

// floor is the job of a worker that makes the exchange for so many hosts.
func (r *recording) floor(hosts int) (job, error) {
	j := job{Tool: toolFloor, Exchange: r.exchange}
	for i := range hosts {
		one, err := jobAt(r.sockets[i%len(r.sockets)].LocalAddr().String())
		if err != nil {
			return j, err
		}
		j.Many = append(j.Many, one)
	}
	return j, nil
}

func (r *recording) stop() {
	for _, s := range r.sockets {
		_ = s.Close() // its reader ends with it
	}
	r.serving.Wait()
}
