package power

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
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
	in      io.WriteCloser
	orders  *json.Encoder
	answers *json.Decoder
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
	in, out, err := c(ctx)
	if err != nil {
		sim.stop()
		return nil, err
	}
	p := &contestant{entry: e, simulator: sim, in: in, orders: json.NewEncoder(in), answers: json.NewDecoder(out)}
	j.Tool, j.Warm = e.tool, e.warm
	if err := p.orders.Encode(j); err != nil {
		p.end()
		return nil, fmt.Errorf("tell a worker its job: %w", err)
	}
	return p, nil
}

func (c *contestant) end() {
	_ = c.in.Close() // how a worker ends matters to nobody
	c.stop()
}

// cost is an outcome and what went over the network for it.
type cost struct {
	wall, cpu time.Duration
	trips     trips
}

func (c cost) add(d cost) cost {
	return cost{c.wall + d.wall, c.cpu + d.cpu, c.trips.add(d.trips)}
}

// do has the worker do a.
func (c *contestant) do(a act) (cost, error) {
	before := c.trips()
	var o outcome
	if err := errors.Join(c.orders.Encode(a), c.answers.Decode(&o)); err != nil {
		return cost{}, fmt.Errorf("have a worker do %q by %s: %w", a, c.name(), err)
	}
	if o.Error != "" {
		return cost{}, fmt.Errorf("%s by %s: %s", a, c.name(), o.Error)
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

// figure is all costs of one thing.
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
