package power

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// tolerance is how much longer than its round trips and the spacing an operation
// of ours may take.
const tolerance = 0.10

// need is what the protocol needs for an operation of ours, the end of the session
// with it, which waits for an answer too.
type need struct {
	what  string
	entry entry
	act   act
	trips trips
	waits time.Duration
}

var needs = []need{
	// Open Session, RAKP 1, RAKP 3, status, close.
	{"IPMI status", entry{tool: "fenced", over: startGo}, actStatus, trips{datagrams: 5}, 0},
	{"IPMI status, session open", entry{tool: "fenced", warm: true, over: startGo}, actStatus, trips{datagrams: 1}, 0},
	// ... and privilege, off, status, status.
	{"IPMI off and proof", entry{tool: "fenced", over: startGo}, actProof, trips{datagrams: 8}, spacing},
	{"IPMI off and proof, session open", entry{tool: "fenced", warm: true, over: startGo}, actProof, trips{datagrams: 3}, spacing},
	// Login, system, logout.
	{"Redfish status", entry{tool: "fenced", over: startRedfish}, actStatus, trips{requests: 3, handshakes: 1}, 0},
	{"Redfish status, session open", entry{tool: "fenced", warm: true, over: startRedfish}, actStatus, trips{requests: 1}, 0},
	// Login, system, off, system, system, logout.
	{"Redfish off and proof", entry{tool: "fenced", over: startRedfish}, actProof, trips{requests: 6, handshakes: 1}, spacing},
	{"Redfish off and proof, session open", entry{tool: "fenced", warm: true, over: startRedfish}, actProof, trips{requests: 3}, spacing},
}

// delays are what the network adds to a round trip.
var delays = []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond}

// times are those of one need at all delays.
type times struct {
	need
	figures []figure // as delays
}

// least is what no client can do faster.
func (n need) least(delay time.Duration) time.Duration {
	return time.Duration(n.trips.roundTrips())*delay + n.waits
}

// overhead is how much longer it took than that, as a share of it; 0 where there
// is nothing to compare with: a status without delay is all overhead.
func (n need) overhead(delay, took time.Duration) float64 {
	least := n.least(delay)
	if least == 0 {
		return 0
	}
	return float64(took-least) / float64(least)
}

// broken is every bound that t does not keep.
func (t times) broken() (all []string) {
	for i, f := range t.figures {
		if o := t.overhead(delays[i], f.wall()); o > tolerance {
			all = append(all, fmt.Sprintf("%s at %s took %.0f %% longer than its round trips", t.what, delays[i], 100*o))
		}
		if got := f.trips(); got != t.trips {
			all = append(all, fmt.Sprintf("%s at %s took %+v, not %+v", t.what, delays[i], got, t.trips))
		}
	}
	return all
}

// measureNeeds measures proofs side by side, because they wait nearly all the
// time, and then the status reads one after another.
func measureNeeds(ctx context.Context, samples int) ([]times, error) {
	all := make([]times, len(needs))
	for i, n := range needs {
		all[i] = times{n, make([]figure, len(delays))}
	}
	for _, waiting := range []bool{true, false} {
		var g errgroup.Group
		if !waiting {
			g.SetLimit(1)
		}
		for i, n := range needs {
			if (n.waits > 0) != waiting {
				continue
			}
			for k, delay := range delays {
				g.Go(func() (err error) {
					all[i].figures[k], err = n.measure(ctx, delay, samples, ownProcess)
					return err
				})
			}
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (n need) measure(ctx context.Context, delay time.Duration, samples int, c connect) (figure, error) {
	p, err := n.entry.start(ctx, delay, c)
	if err != nil {
		return nil, err
	}
	defer p.end()
	var f figure
	for range samples {
		s, err := p.prepared(n.act)
		if err != nil {
			return nil, fmt.Errorf("%s at %s: %w", n.what, delay, err)
		}
		f = append(f, s)
	}
	return f, nil
}
