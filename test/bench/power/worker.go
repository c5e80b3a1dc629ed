package power

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
	"github.com/fenced/fenced/test/rig"
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

// actTime bounds one act of a worker: as long as a run tries one power level.
const actTime = 60 * time.Second

// job says which BMC a worker uses, and by which tool.
type job struct {
	Tool string
	Warm bool
	Host string
	Port int
	// CA is a file, System the path of the host; for Redfish.
	CA, System string
	// Many are the BMCs of a worker that isolates many hosts at once; the first Hung of them do not answer. Exchange is
	// what goes over the network for each, if they only play the BMC's part in it.
	Many     []job
	Hung     int
	Exchange []exchange
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
	Grew      int64 // bytes, by how much the most memory of the worker grew
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
	t, err := j.build()
	if err != nil {
		return err
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

// performer does what a worker is told. An act takes until it returns, unless it says for how long it mattered.
type performer interface {
	perform(context.Context, act) (mattered time.Duration, err error)
}

func (j job) build() (performer, error) {
	build, known := tools[j.Tool]
	switch {
	case j.Many != nil:
		return j.buildMany()
	case !known:
		return nil, fmt.Errorf("there is no tool %q", j.Tool)
	}
	t, err := build(j)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", j.Tool, err)
	}
	return single{t}, nil
}

func measured(ctx context.Context, p performer, a act) outcome {
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	began, used, held := time.Now(), cpu(), peak()
	mattered, err := p.perform(ctx, a)
	o := outcome{Wall: cmp.Or(mattered, time.Since(began)), CPU: cpu() - used, Grew: peak() - held}
	if err != nil {
		o.Error = err.Error()
	}
	return o
}

// single is a tool with the one BMC of its job.
type single struct{ tool }

func (s single) perform(ctx context.Context, a act) (time.Duration, error) {
	switch a {
	case actWarm:
		return 0, s.warm(ctx)
	case actStatus:
		return 0, s.status(ctx)
	case actOff:
		return 0, s.off(ctx)
	case actConfirm:
		return 0, s.confirm(ctx)
	case actProof:
		return 0, prove(ctx, s.tool)
	}
	return 0, fmt.Errorf("%q is nothing to do", a)
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

// peak is the most memory that this process ever had. What getrusage(2) gives includes that of the program that started it.
func peak() int64 {
	bytes, err := rig.Memory(os.Getpid(), "VmHWM")
	if err != nil {
		panic(err) // nothing of this works without it
	}
	return bytes
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
