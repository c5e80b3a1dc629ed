package power

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

// The account of every simulated BMC; it is the simulators' default.
const (
	user     = "admin"
	password = "secret"
)

// spacing is between the two Off reads of a proof, maxAge how old the second may
// be. // I1
const (
	spacing = 3 * time.Second
	maxAge  = 5 * time.Second
)

// actTime bounds one act of a worker.
const actTime = 30 * time.Second

// job says which BMC a worker uses, and by which tool.
type job struct {
	Tool string
	Warm bool
	Host string
	Port int
	// CA is a file, System the path of the host; for Redfish.
	CA, System string
}

// act is what a worker is told to do. The host is on before a status or an off.
type act string

const (
	actWarm    act = "warm"    // whatever makes what follows warm; never measured
	actStatus  act = "status"  // one status read, from nothing to nothing
	actOff     act = "off"     // the command, and the first Off read
	actConfirm act = "confirm" // the second Off read, and the end
	actProof   act = "proof"   // off, the spacing, confirm
)

// outcome is what an act cost.
type outcome struct {
	Wall, CPU time.Duration
	Error     string
}

// tool is a way to switch a host off.
type tool interface {
	warm(context.Context) error
	status(context.Context) error
	off(context.Context) error
	confirm(context.Context) error
}

// tools make the tool of a job, by name.
var tools = map[string]func(job) (tool, error){
	"fenced":        newOwn,
	"ipmitool":      func(j job) (tool, error) { return ipmitool{j}, nil },
	"bmclib":        newLibrary,
	"fence_ipmilan": newAgent,
	"fence_redfish": newAgent,
	// Its power_wait is 2 s, which is what it does when nobody tells it otherwise.
	"fence_ipmilan (defaults)": newAgent,
}

// Serve is a worker: it reads a job, then acts, and answers each with its
// outcome, all in JSON, until in ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := orders.Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	build, known := tools[j.Tool]
	if !known {
		return fmt.Errorf("there is no tool %q", j.Tool)
	}
	t, err := build(j)
	if err != nil {
		return fmt.Errorf("prepare %s: %w", j.Tool, err)
	}
	for {
		var a act
		if err := orders.Decode(&a); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read what to do: %w", err)
		}
		if err := answers.Encode(measured(ctx, t, a)); err != nil {
			return fmt.Errorf("tell what it cost: %w", err)
		}
	}
}

func measured(ctx context.Context, t tool, a act) outcome {
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	began, used := time.Now(), cpu()
	err := perform(ctx, t, a)
	o := outcome{Wall: time.Since(began), CPU: cpu() - used}
	if err != nil {
		o.Error = err.Error()
	}
	return o
}

func perform(ctx context.Context, t tool, a act) error {
	switch a {
	case actWarm:
		return t.warm(ctx)
	case actStatus:
		return t.status(ctx)
	case actOff:
		return t.off(ctx)
	case actConfirm:
		return t.confirm(ctx)
	case actProof:
		return prove(ctx, t)
	}
	return fmt.Errorf("%q is nothing to do", a)
}

// prove is a proof in one go.
func prove(ctx context.Context, t tool) error {
	if err := t.off(ctx); err != nil {
		return err
	}
	wait := time.NewTimer(spacing)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
	}
	return t.confirm(ctx)
}

// cpu is what this process and its ended children used so far.
func cpu() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			panic(err) // the kernel has no other reason than a wrong argument
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

// trips are what a contestant sent to a BMC.
type trips struct {
	datagrams  int // each is answered
	requests   int // over HTTP
	handshakes int // TCP and TLS 1.3
}

// roundTrips are those of the network; a handshake is one for TCP and one for TLS.
func (t trips) roundTrips() int { return t.datagrams + t.requests + 2*t.handshakes }

func (t trips) sub(u trips) trips {
	return trips{t.datagrams - u.datagrams, t.requests - u.requests, t.handshakes - u.handshakes}
}

func (t trips) add(u trips) trips {
	return trips{t.datagrams + u.datagrams, t.requests + u.requests, t.handshakes + u.handshakes}
}

// simulator is one BMC with one contestant, and the network between them.
type simulator interface {
	job() (job, error)
	// on switches the host on behind the BMC's back; off says whether it is off.
	on() error
	off() bool
	trips() trips
	stop()
}

// ipmiSimulator is a BMC behind a relay that counts and delays.
type ipmiSimulator struct {
	bmc   ipmisim.BMC
	relay *ipmisim.Relay
}

// startDebian is a BMC of Debian's ipmi_sim, which others wrote.
func startDebian(ctx context.Context, delay time.Duration) (simulator, error) {
	b, err := ipmisim.StartDebian(ctx, ipmisim.Options{})
	if err != nil {
		return nil, err
	}
	return behindRelay(b, delay)
}

// startGo is a BMC in this process, which answers at once: ipmi_sim runs a script
// for each chassis command, and that time is not the client's.
func startGo(ctx context.Context, delay time.Duration) (simulator, error) {
	b, err := ipmisim.StartGo(ctx, ipmisim.Options{Suites: []int{3}})
	if err != nil {
		return nil, err
	}
	return behindRelay(b, delay)
}

func behindRelay(b ipmisim.BMC, delay time.Duration) (simulator, error) {
	r, err := ipmisim.StartRelay(b.Addr())
	if err != nil {
		b.Stop()
		return nil, err
	}
	if delay > 0 {
		r.Delay(delay)
	}
	return &ipmiSimulator{b, r}, nil
}

func (s *ipmiSimulator) job() (job, error) { return jobAt(s.relay.Addr()) }
func (s *ipmiSimulator) on() error         { return s.bmc.SetPower(true) }
func (s *ipmiSimulator) off() bool         { return !s.bmc.Power() }
func (s *ipmiSimulator) trips() trips      { return trips{datagrams: s.relay.Asked()} }

func (s *ipmiSimulator) stop() {
	s.relay.Stop()
	s.bmc.Stop()
}

// redfishSimulator is a service that counts and delays by itself.
type redfishSimulator struct{ *redfishsim.Server }

func startRedfish(_ context.Context, delay time.Duration) (simulator, error) {
	s, err := redfishsim.Start(redfishsim.Options{})
	if err != nil {
		return nil, err
	}
	s.Faults(func(f *redfishsim.Faults) { f.RTT = delay })
	return redfishSimulator{s}, nil
}

func (s redfishSimulator) job() (job, error) {
	j, err := jobAt(s.Addr())
	j.CA, j.System = s.CAFile(), s.System(0).URI()
	return j, err
}

func (s redfishSimulator) on() error { return s.SetPower(true) }
func (s redfishSimulator) off() bool { return !s.Power() }
func (s redfishSimulator) stop()     { s.Stop() }

func (s redfishSimulator) trips() trips {
	return trips{requests: len(s.Requests()), handshakes: s.Connections()}
}

func jobAt(addr string) (job, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return job{}, fmt.Errorf("read the address of a BMC: %w", err)
	}
	n, err := strconv.Atoi(port)
	return job{Host: host, Port: n}, err
}

// fleet is many hosts, each behind a BMC of its own in this process.
type fleet struct {
	bmcs  []*ipmisim.GoBMC
	hosts []bmc.Host
}

func startFleet(ctx context.Context, size int) (*fleet, error) {
	f := &fleet{}
	for i := range size {
		b, err := ipmisim.StartGo(ctx, ipmisim.Options{Suites: []int{3}})
		if err != nil {
			f.stop()
			return nil, err
		}
		f.bmcs = append(f.bmcs, b)
		j, err := jobAt(b.Addr())
		if err != nil {
			f.stop()
			return nil, err
		}
		f.hosts = append(f.hosts, bmc.Host{
			Name: fmt.Sprintf("host-%d", i), Levels: []bmc.Level{{Devices: []bmc.Device{j.device()}}},
		})
	}
	return f, nil
}

func (f *fleet) stop() {
	for _, b := range f.bmcs {
		b.Stop()
	}
}

// hang makes the first BMCs hang, or answer again.
func (f *fleet) hang(first int, hang bool) error {
	var errs []error
	for _, b := range f.bmcs[:first] {
		errs = append(errs, b.Hang(hang))
	}
	return errors.Join(errs...)
}

// on switches all hosts on.
func (f *fleet) on() error {
	var errs []error
	for _, b := range f.bmcs {
		errs = append(errs, b.SetPower(true))
	}
	return errors.Join(errs...)
}

// each does work on all hosts from the number first on at once, through actors as
// fenced's runs do. It gives the time until the last BMC that answers was done
// with: those below hung do not answer, and are given up then.
func (f *fleet) each(ctx context.Context, first, hung int, work func(context.Context, bmc.Power) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	powers, err := f.open(first)
	if err != nil {
		return 0, err
	}
	defer closeAll(powers)
	errs := make([]error, len(powers))
	var answering, all sync.WaitGroup
	began := time.Now()
	for i, p := range powers {
		do := all.Go
		if first+i >= hung {
			do = answering.Go
		}
		do(func() { errs[i] = work(ctx, p) })
	}
	answering.Wait()
	took := time.Since(began)
	cancel() // nobody waits for a hung BMC
	all.Wait()
	for i, err := range errs {
		if answers := first+i >= hung; answers != (err == nil) {
			return took, fmt.Errorf("%s, whose BMC answers: %t: %w", f.hosts[first+i].Name, answers, err)
		}
	}
	return took, nil
}

// open opens the hosts from first on; nothing is sent yet.
func (f *fleet) open(first int) ([]bmc.Power, error) {
	actors := power.NewActors(open)
	var powers []bmc.Power
	for _, h := range f.hosts[first:] {
		p, err := power.OpenLevel(actors.Urgent(), h, 0)
		if err != nil {
			closeAll(powers)
			return nil, err
		}
		powers = append(powers, p)
	}
	return powers, nil
}

func closeAll(powers []bmc.Power) {
	var wait sync.WaitGroup
	for _, p := range powers {
		wait.Go(func() { _ = p.Close(context.Background()) }) // a hung BMC's session cannot be ended
	}
	wait.Wait()
}

// readOn is one status read.
func readOn(ctx context.Context, p bmc.Power) error {
	r, err := p.Read(ctx)
	if err == nil && r.State != bmc.On {
		err = fmt.Errorf("the host reads %s", r.State)
	}
	return err
}

// isolate switches off and proves it.
func isolate(ctx context.Context, p bmc.Power) error {
	if _, err := p.Send(ctx, bmc.CommandOff); err != nil {
		return err
	}
	proof := bmc.Proof{Spacing: spacing, MaxAge: maxAge}
	for !proof.Proven(time.Now()) {
		if err := until(ctx, proof.NextRead(time.Now())); err != nil {
			return err
		}
		r, err := p.Read(ctx)
		if err != nil {
			return err
		}
		proof = proof.Add(r)
	}
	return nil
}
