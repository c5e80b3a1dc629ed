package power

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

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
