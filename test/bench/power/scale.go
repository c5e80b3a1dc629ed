package power

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	hungOf10 = 1 // of ten BMCs that do not answer
	// execAtOnce is how many ipmitool run at once, on execSample BMCs: a thousand
	// would take too long.
	execAtOnce, execSample = 64, 100
)

// The bounds of scale.
const (
	boundSweep = 200 * time.Millisecond // the status of 1,000
	// What 900 take beside 100 hung ones, as a share of what they take alone. A
	// status of all is so short that the machine's noise shows; waiting for one
	// hung BMC would be 5 s.
	boundSweepBeside, boundIsolateBeside = 1.5, 1 + tolerance
)

// scale is what many BMCs at once take.
type scale struct {
	size, hung int
	sweep      time.Duration // status of all
	exec       time.Duration // status of a sample, by ipmitool
	sample     int
	// The time of those that answer, alone and beside those that hang.
	sweepAlone, sweepBeside     time.Duration
	isolateAlone, isolateBeside time.Duration
}

func measureScale(ctx context.Context, size, samples int) (scale, error) {
	s := scale{size: size, hung: size * hungOf10 / 10, sample: min(size, execSample)}
	f, err := startFleet(ctx, size)
	if err != nil {
		return s, err
	}
	defer f.stop()
	if s.sweep, err = medianOf(samples, func() (time.Duration, error) { return f.each(ctx, 0, 0, readOn) }); err != nil {
		return s, fmt.Errorf("status of %d BMCs: %w", size, err)
	}
	if s.exec, err = f.sweepByExec(ctx, s.sample); err != nil {
		return s, fmt.Errorf("status of %d BMCs by ipmitool: %w", s.sample, err)
	}
	if s.sweepAlone, s.sweepBeside, err = f.beside(ctx, s.hung, samples, readOn); err != nil {
		return s, fmt.Errorf("status of %d BMCs, %d hung: %w", size, s.hung, err)
	}
	if s.isolateAlone, s.isolateBeside, err = f.beside(ctx, s.hung, samples, isolate); err != nil {
		return s, fmt.Errorf("isolate %d hosts, %d BMCs hung: %w", size, s.hung, err)
	}
	return s, nil
}

// medianOf measures samples times.
func medianOf(samples int, measure func() (time.Duration, error)) (time.Duration, error) {
	var all []time.Duration
	for range samples {
		took, err := measure()
		if err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// beside measures work on the hosts whose BMCs answer, first without the others,
// then beside them.
func (f *fleet) beside(ctx context.Context, hung, samples int, work func(context.Context, bmc.Power) error) (alone, with time.Duration, err error) {
	if err = f.hang(hung, true); err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.hang(hung, false) }() // never fails for a BMC in this process
	run := func(first int) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			if err := f.on(); err != nil {
				return 0, err
			}
			return f.each(ctx, first, hung, work)
		}
	}
	if alone, err = medianOf(samples, run(hung)); err == nil {
		with, err = medianOf(samples, run(0))
	}
	return alone, with, err
}

// sweepByExec is the status of the first BMCs as a shell script reads it.
func (f *fleet) sweepByExec(ctx context.Context, sample int) (time.Duration, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(execAtOnce)
	began := time.Now()
	for _, b := range f.bmcs[:sample] {
		g.Go(func() error {
			j, err := jobAt(b.Addr())
			if err != nil {
				return err
			}
			return ipmitool{j}.status(ctx)
		})
	}
	err := g.Wait()
	return time.Since(began), err
}

// broken is every bound that s does not keep.
func (s scale) broken() (all []string) {
	if s.sweep >= boundSweep {
		all = append(all, fmt.Sprintf("the status of %d BMCs took %s", s.size, s.sweep))
	}
	if ratio(s.sweepBeside, s.sweepAlone) > boundSweepBeside {
		all = append(all, fmt.Sprintf("a status beside %d hung BMCs took %s, and %s without them", s.hung, s.sweepBeside, s.sweepAlone))
	}
	if ratio(s.isolateBeside, s.isolateAlone) > boundIsolateBeside {
		all = append(all, fmt.Sprintf("an isolation beside %d hung BMCs took %s, and %s without them", s.hung, s.isolateBeside, s.isolateAlone))
	}
	return all
}

func ratio(a, b time.Duration) float64 { return a.Seconds() / b.Seconds() }
