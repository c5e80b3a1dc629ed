package power

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Options size a measurement.
type Options struct {
	Samples int // of each operation; half of it, or one, where that is slow
	BMCs    int // at once
	// Progress is told what happens.
	Progress io.Writer
}

// Report is what was measured.
type Report struct {
	contests []contest // as delays
	needs    []times
	scale    scale
}

// Measure measures everything; it takes about three minutes with the samples of
// `make bench`. It needs ipmi_sim, ipmitool and the two fence agents.
func Measure(ctx context.Context, o Options) (*Report, error) {
	if o.Samples < 1 || o.BMCs < 10 {
		return nil, errors.New("at least one sample and ten BMCs are needed")
	}
	tell := func(what string) { fmt.Fprintf(o.Progress, "bench: power: %s\n", what) }
	r := &Report{}
	for i, delay := range delays {
		tell(fmt.Sprintf("all contestants, %s added to each round trip", delay))
		c, err := hold(ctx, delay, []int{o.Samples, fewer(o.Samples), 1}[i], ownProcess)
		if err != nil {
			return nil, err
		}
		r.contests = append(r.contests, c)
	}
	tell("fenced's own times against those of the protocol")
	var err error
	if r.needs, err = measureNeeds(ctx, fewer(o.Samples)); err != nil {
		return nil, err
	}
	tell(fmt.Sprintf("%d BMCs at once", o.BMCs))
	r.scale, err = measureScale(ctx, o.BMCs, fewer(o.Samples))
	return r, err
}

func fewer(samples int) int { return (samples + 1) / 2 }

// Check is an error that names every bound which does not hold.
func (r *Report) Check() error {
	broken := r.scale.broken()
	for _, t := range r.needs {
		broken = append(broken, t.broken()...)
	}
	if len(broken) == 0 {
		return nil
	}
	return fmt.Errorf("bound broken: %s", strings.Join(broken, "; "))
}
