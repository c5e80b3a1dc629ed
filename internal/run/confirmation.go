package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
)

// finalReadTimeout bounds the last read of all levels before a Node is isolated on a person's
// confirmation. Most levels do not answer, and the look must stay fresh meanwhile.
const finalReadTimeout = 2 * time.Second

// contradicts returns which power level reads On while a person confirms that the host is off.
// It is for a look that cannot read the run's own level, and reads the lower ones: a level that
// the run has given up may answer again. It is "" if no level reads On. // I26
func (p *powerAccess) contradicts(ctx context.Context, run remediate.Run) string {
	if run.HasConfirmation() && p.contradiction == "" {
		p.contradiction, _ = p.readAll(ctx, run, run.Level) // the final read asks those that cannot be asked now
		p.contradiction = cmp.Or(p.contradiction, p.witnessOn(run))
	}
	return p.contradiction
}

// witnessOn returns which witness of the session has read On since the confirmation: a BMC that
// answers now and then may have answered only the session. It is "" if none has. // I26
func (p *powerAccess) witnessOn(run remediate.Run) string {
	if p.session == nil {
		return ""
	}
	name := p.session.LowerLevelOn(run.Confirmed.At)
	if name == "" {
		return ""
	}
	return name + " reads On"
}

// readAll reads the power levels below end at the same time, and names one that reads On. A host
// without a usable entry has no level to read, as when the person confirmed. An error means that
// the search for the entry was interrupted.
func (p *powerAccess) readAll(ctx context.Context, run remediate.Run, end int) (on string, err error) {
	h, err := p.opt.Hosts.Find(ctx, run.Target)
	if err != nil {
		return "", ctx.Err()
	}
	results := make([]string, min(end, len(h.Levels)))
	var reads sync.WaitGroup
	for i := range results {
		reads.Go(func() {
			r, s, err := power.OpenAndRead(ctx, p.opt.Open, h, i, p.opt.Timing)
			if err != nil {
				return
			}
			defer s.Close(ctx)
			if r.State == bmc.On {
				results[i] = fmt.Sprintf("power level %d (%s) reads On", i+1, power.LevelText(h, i))
			}
		})
	}
	reads.Wait()
	if i := slices.IndexFunc(results, func(s string) bool { return s != "" }); i >= 0 {
		return results[i], nil
	}
	return "", nil
}

// finalRead reads all levels once more, the run's as well, before a Node is isolated on a
// person's confirmation. It returns why the Node must not be isolated. The next look shows the
// contradiction to remediate.Next, even if no level answers then. // I26
func (p *powerAccess) finalRead(ctx context.Context, run remediate.Run, a remediate.Action) string {
	if a != remediate.IsolateNode || !run.IsolatesOnConfirmation() {
		return ""
	}
	reading, cancel := context.WithTimeout(ctx, finalReadTimeout)
	defer cancel()
	on, err := p.readAll(reading, run, run.Level+1)
	p.contradiction = cmp.Or(on, p.witnessOn(run))
	switch {
	case p.contradiction != "":
		return p.contradiction
	case ctx.Err() != nil: // no level was read
		return "it is to stop"
	case err != nil:
		return "no BMC could be asked once more: " + err.Error()
	}
	return ""
}
