package power

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bmc-toolbox/bmclib/v2"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/internal/redfish"
)

// WorkerWord makes this program a worker, when it is its only argument.
const WorkerWord = "power-worker"

// connect starts a worker and gives its two ends; closing in ends it.
type connect func(ctx context.Context) (in io.WriteCloser, out io.Reader, err error)

// ownProcess is a worker as a process: this program under another word.
func ownProcess(ctx context.Context) (io.WriteCloser, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, WorkerWord)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start a worker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start a worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start a worker: %w", err)
	}
	return &process{in, cmd}, out, nil
}

// process is the input of a worker; closing it waits for the worker's end.
type process struct {
	io.WriteCloser
	cmd *exec.Cmd
}

func (p *process) Close() error { return errors.Join(p.WriteCloser.Close(), p.cmd.Wait()) }

// contestant is a tool in its worker, with a BMC of its own.
type contestant struct {
	entry
	simulator
	*employee
}

// entry is a line of the tables.
type entry struct {
	tool string
	warm bool
	over func(context.Context, time.Duration) (simulator, error)
}

func (e entry) name() string {
	switch {
	case e.tool != "fenced":
		return e.tool
	case e.warm:
		return "fenced, session open"
	}
	return "fenced, from nothing"
}

// start starts the BMC, with a network that adds delay, and the worker.
func (e entry) start(ctx context.Context, delay time.Duration, c connect) (*contestant, error) {
	sim, err := e.over(ctx, delay)
	if err != nil {
		return nil, err
	}
	j, err := sim.job()
	if err != nil {
		sim.stop()
		return nil, err
	}
	j.Tool, j.Warm = e.tool, e.warm
	hired, err := j.employ(ctx, c)
	if err != nil {
		sim.stop()
		return nil, err
	}
	return &contestant{e, sim, hired}, nil
}

func (c *contestant) end() {
	c.dismiss()
	c.stop()
}

// employee is a worker as the one sees it that gives it orders.
type employee struct {
	in      io.WriteCloser
	orders  *json.Encoder
	answers *json.Decoder
}

// employ starts a worker for a job.
func (j job) employ(ctx context.Context, c connect) (*employee, error) {
	in, out, err := c(ctx)
	if err != nil {
		return nil, err
	}
	e := &employee{in, json.NewEncoder(in), json.NewDecoder(out)}
	if err := e.orders.Encode(j); err != nil {
		e.dismiss()
		return nil, fmt.Errorf("tell a worker its job: %w", err)
	}
	return e, nil
}

func (e *employee) dismiss() { _ = e.in.Close() } // how a worker ends matters to nobody

func (e *employee) order(a act) (o outcome, err error) {
	if err := errors.Join(e.orders.Encode(a), e.answers.Decode(&o)); err != nil {
		return o, fmt.Errorf("have a worker do %q: %w", a, err)
	}
	if o.Error != "" {
		return o, errors.New(o.Error)
	}
	return o, nil
}

// cost is an outcome and what went over the network for it.
type cost struct {
	wall, cpu time.Duration
	trips     trips
}

func (c cost) add(d cost) cost {
	return cost{c.wall + d.wall, c.cpu + d.cpu, c.trips.add(d.trips)}
}

func (c *contestant) do(a act) (cost, error) {
	before := c.trips()
	o, err := c.order(a)
	if err != nil {
		return cost{}, fmt.Errorf("%s by %s: %w", a, c.name(), err)
	}
	return cost{o.Wall, o.CPU, c.trips().sub(before)}, nil
}

// prepared does a after what must be true before: the host is on, and a warm
// contestant warm.
func (c *contestant) prepared(a act) (cost, error) {
	if err := c.on(); err != nil {
		return cost{}, err
	}
	if c.warm {
		if _, err := c.do(actWarm); err != nil {
			return cost{}, err
		}
	}
	return c.do(a)
}

type figure []cost

func (f figure) wall() time.Duration {
	return median(f, func(c cost) time.Duration { return c.wall })
}
func (f figure) cpu() time.Duration { return median(f, func(c cost) time.Duration { return c.cpu }) }

// trips are those of the sample with the median number of round trips.
func (f figure) trips() trips {
	sorted := slices.SortedFunc(slices.Values(f), func(a, b cost) int { return a.trips.roundTrips() - b.trips.roundTrips() })
	return sorted[len(sorted)/2].trips
}

func median(f figure, of func(cost) time.Duration) time.Duration {
	all := make([]time.Duration, len(f))
	for i, c := range f {
		all[i] = of(c)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// timing is that of fenced's configuration when it says nothing.
var timing = bmc.Timing{ReadTimeout: 5 * time.Second, SendTimeout: 10 * time.Second}

// own is fenced's client of the BMC's protocol.
type own struct {
	device bmc.Device
	keep   bool      // the session, for the next act
	power  bmc.Power // nil while there is none
	proof  bmc.Proof
}

func newOwn(j job) (tool, error) { return &own{device: j.device(), keep: j.Warm}, nil }

// device is the BMC of a job as fenced's inventory would have it. Suite 3 is all
// that ipmi_sim has, so that every contestant is told so.
func (j job) device() bmc.Device {
	d := bmc.Device{
		Driver: bmc.DriverIPMI, Username: user, Password: bmc.NewSecret(password), CipherSuites: []int{3},
		Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: j.Host, Port: j.Port, Privilege: "OPERATOR"},
	}
	if j.System != "" {
		d.Driver, d.CipherSuites, d.TLS = bmc.DriverRedfish, nil, bmc.TLS{CA: j.CA}
		d.Endpoint = bmc.Endpoint{Protocol: bmc.ProtocolRedfish, Host: j.Host, Port: j.Port, System: j.System}
	}
	return d
}

// open is a bmc.Opener of the two drivers of our own.
func open(d bmc.Device) (bmc.Power, error) {
	if d.Driver == bmc.DriverRedfish {
		return redfish.New(d, timing)
	}
	return ipmi.New(d, timing), nil
}

func (o *own) client() (p bmc.Power, err error) {
	if o.power == nil {
		o.power, err = open(o.device)
	}
	return o.power, err
}

// end closes the session of an act that does not keep it.
func (o *own) end(ctx context.Context) error {
	if o.keep {
		return nil
	}
	p := o.power
	o.power = nil
	return p.Close(ctx)
}

// warm opens the session and has it raised to the privilege that an off needs.
func (o *own) warm(ctx context.Context) error {
	p, err := o.client()
	if err != nil {
		return err
	}
	_, err = p.Send(ctx, bmc.CommandOn)
	return err
}

func (o *own) status(ctx context.Context) error {
	if _, err := o.read(ctx, bmc.On); err != nil {
		return err
	}
	return o.end(ctx)
}

func (o *own) read(ctx context.Context, want bmc.PowerState) (bmc.Reading, error) {
	p, err := o.client()
	if err != nil {
		return bmc.Reading{}, err
	}
	r, err := p.Read(ctx)
	if err == nil && r.State != want {
		err = fmt.Errorf("the host reads %s, not %s", r.State, want)
	}
	return r, err
}

func (o *own) off(ctx context.Context) error {
	p, err := o.client()
	if err != nil {
		return err
	}
	if _, err := p.Send(ctx, bmc.CommandOff); err != nil {
		return err
	}
	r, err := o.read(ctx, bmc.Off)
	o.proof = bmc.Proof{Spacing: spacing, MaxAge: maxAge}.Add(r)
	return err
}

// confirm is an error unless fenced itself would call the host off.
func (o *own) confirm(ctx context.Context) error {
	r, err := o.read(ctx, bmc.Off)
	if err != nil {
		return err
	}
	if !o.proof.Add(r).Proven(time.Now()) {
		return fmt.Errorf("two Off reads, %s apart, are no proof", r.At.Sub(o.proof.Since()))
	}
	return o.end(ctx)
}

// ipmitool runs the command once for each step, as scripts do.
type ipmitool struct{ job }

func (t ipmitool) warm(context.Context) error { return nil } // it keeps nothing

func (t ipmitool) status(ctx context.Context) error {
	return t.power(ctx, "status", "Chassis Power is on")
}

func (t ipmitool) off(ctx context.Context) error {
	if err := t.power(ctx, "off", "Chassis Power Control: Down/Off"); err != nil {
		return err
	}
	return t.confirm(ctx)
}

func (t ipmitool) confirm(ctx context.Context) error {
	return t.power(ctx, "status", "Chassis Power is off")
}

func (t ipmitool) power(ctx context.Context, word, want string) error {
	cmd := exec.CommandContext(ctx, "ipmitool", "-I", "lanplus", "-C", "3", "-H", t.Host, "-p", strconv.Itoa(t.Port),
		"-U", user, "-E", "chassis", "power", word)
	cmd.Env = append(os.Environ(), "IPMI_PASSWORD="+password)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("ipmitool %s: %w: %s", word, err, bytes.TrimSpace(said))
	}
	if string(bytes.TrimSpace(said)) != want {
		return fmt.Errorf("ipmitool %s: %q, not %q", word, said, want)
	}
	return nil
}

// library is bmclib's client as its documentation uses it, open, set, get and
// close, with the one provider that fits. Left with all it has, it would try
// seven of them at once.
type library struct {
	job
	pool   *x509.CertPool
	client *bmclib.Client // open; nil between two acts
}

func newLibrary(j job) (tool, error) {
	l := &library{job: j}
	if j.CA != "" {
		pem, err := os.ReadFile(j.CA)
		if err != nil {
			return nil, err
		}
		l.pool = x509.NewCertPool()
		l.pool.AppendCertsFromPEM(pem)
	}
	return l, nil
}

func (l *library) open(ctx context.Context) error {
	port, host, provider := strconv.Itoa(l.Port), l.Host, "ipmitool"
	options := []bmclib.Option{bmclib.WithIpmitoolPort(port), bmclib.WithIpmitoolCipherSuite("3")}
	if l.System != "" {
		provider, host = "gofish", "https://"+l.Host
		// The simulator refuses If-Match, as some firmware does.
		options = []bmclib.Option{
			bmclib.WithRedfishPort(port), bmclib.WithSecureTLS(l.pool), bmclib.WithRedfishEtagMatchDisabled(true),
		}
	}
	l.client = bmclib.NewClient(host, user, password, options...)
	l.client.Registry.Drivers = l.client.Registry.For(provider)
	return l.client.Open(ctx)
}

func (l *library) close(ctx context.Context) error {
	c := l.client
	l.client = nil
	return c.Close(ctx)
}

func (l *library) warm(context.Context) error { return nil } // its connections are not kept alive

func (l *library) status(ctx context.Context) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	if err := l.read(ctx, "on"); err != nil {
		return err
	}
	return l.close(ctx)
}

func (l *library) off(ctx context.Context) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	if ok, err := l.client.SetPowerState(ctx, "off"); err != nil || !ok {
		return fmt.Errorf("switch off by bmclib: %t: %w", ok, err)
	}
	return l.read(ctx, "off")
}

func (l *library) confirm(ctx context.Context) error {
	if err := l.read(ctx, "off"); err != nil {
		return err
	}
	return l.close(ctx)
}

// read wants a state in either provider's words: "Chassis Power is on", or "On".
func (l *library) read(ctx context.Context, want string) error {
	said, err := l.client.GetPowerState(ctx)
	if err != nil {
		return err
	}
	if words := strings.Fields(strings.ToLower(said)); len(words) == 0 || words[len(words)-1] != want {
		return fmt.Errorf("read power state by bmclib: %q, not %s", said, want)
	}
	return nil
}

// agent is a fence agent with its parameters on standard input, as Pacemaker
// gives them. Its off reads until the host is off, so that is the first read.
type agent struct {
	path       string
	parameters string
}

// The statuses by which a fence agent ends.
const (
	agentOK  = 0 // done, or the host is on
	agentOff = 2 // asked for the status: the host is off
)

func newAgent(j job) (tool, error) {
	name, defaults := strings.CutSuffix(j.Tool, " (defaults)")
	path, err := find(name)
	if err != nil {
		return nil, err
	}
	p := fmt.Sprintf("ip=%s\nipport=%d\nusername=%s\npassword=%s\n", j.Host, j.Port, user, password)
	switch {
	case j.System != "":
		// It knows no CA file; its users do this.
		p += "ssl_insecure=1\nsystems_uri=" + j.System + "\n"
	case defaults:
		p += "lanplus=1\ncipher=3\n"
	default:
		p += "lanplus=1\ncipher=3\npower_wait=0\n"
	}
	return &agent{path: path, parameters: p}, nil
}

// find looks also where Debian keeps fence agents.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	return path, err
}

func (a *agent) warm(context.Context) error { return nil } // it keeps nothing

func (a *agent) status(ctx context.Context) error { return a.run(ctx, "status", agentOK) }

func (a *agent) off(ctx context.Context) error { return a.run(ctx, "off", agentOK) }

func (a *agent) confirm(ctx context.Context) error { return a.run(ctx, "status", agentOff) }

func (a *agent) run(ctx context.Context, action string, want int) error {
	cmd := exec.CommandContext(ctx, a.path)
	cmd.Stdin = strings.NewReader("action=" + action + "\n" + a.parameters)
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("run %s: %w", a.path, err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		return fmt.Errorf("%s %s ended with %d, not %d: %s", a.path, action, got, want, bytes.TrimSpace(said))
	}
	return nil
}
