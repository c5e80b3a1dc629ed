package power

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/test/ipmisim"
)

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
