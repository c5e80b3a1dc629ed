package power

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
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
