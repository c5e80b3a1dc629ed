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

// wordWait bounds the last question to all levels before a Node is isolated on a
// person's word: most of them do not answer, and the look before must stay fresh.
const wordWait = 2 * time.Second

// besides is what a level below the run's reads, where the run's own cannot be read and
// a person's word stands: who is asked no more may be heard again. // I26
func (w *worker) besides(ctx context.Context) string {
	if w.run.HasConfirmation() && w.against == "" {
		w.against, _ = w.readsOn(ctx, w.run.Level) // what cannot be asked now is asked at the last moment
		w.against = cmp.Or(w.against, w.heardOn())
	}
	return w.against
}

// heardOn is what the session's witnesses have heard to read On since the word was given:
// a BMC that answers now and then may have answered them alone. // I26
func (w *worker) heardOn() string {
	if w.session == nil {
		return ""
	}
	name := w.session.LowerLevelOn(w.run.Confirmed.At)
	if name == "" {
		return ""
	}
	return name + " reads On"
}

// readsOn asks the power levels below top, each with its own time, and names one that
// reads On. A host without a usable entry has none to ask, here as when the word was
// given; a search for it that was cut short is an error.
func (w *worker) readsOn(ctx context.Context, top int) (string, error) {
	h, err := w.r.opt.Hosts.Find(ctx, w.run.Target)
	if err != nil {
		return "", ctx.Err()
	}
	said := make([]string, min(top, len(h.Levels)))
	var asked sync.WaitGroup
	for i := range said {
		asked.Go(func() {
			r, s, err := power.OpenAndRead(ctx, w.r.opt.Open, h, i, w.r.opt.Timing)
			if err != nil {
				return
			}
			defer s.Close(ctx)
			if r.State == bmc.On {
				said[i] = fmt.Sprintf("power level %d (%s) reads On", i+1, power.LevelText(h, i))
			}
		})
	}
	asked.Wait()
	if i := slices.IndexFunc(said, func(s string) bool { return s != "" }); i >= 0 {
		return said[i], nil
	}
	return "", nil
}

// lastWord asks all levels once more, the run's too, before a Node is isolated on a
// person's word, and says which reads On. The next look shows it to Next, although none
// may be heard then. // I26
func (w *worker) lastWord(ctx context.Context, d decision) string {
	if d.action != remediate.IsolateNode || !w.run.IsolatesOnConfirmation() {
		return ""
	}
	asking, cancel := context.WithTimeout(ctx, wordWait)
	defer cancel()
	on, err := w.readsOn(asking, w.run.Level+1)
	on = cmp.Or(on, w.heardOn())
	w.against = on
	switch {
	case on != "":
		return on
	case ctx.Err() != nil: // nobody was asked
		return "it is to stop"
	case err != nil:
		return "no BMC could be asked once more: " + err.Error()
	}
	return ""
}
