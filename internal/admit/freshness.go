package admit

import (
	"cmp"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/suspend"
)

// Watch is the cached view of one cluster.
type Watch interface {
	// Changes is everything that came, changed or went since the last call.
	Changes() []policy.Change
	Changed() <-chan struct{}
	View() View
}

// View is how good a cached view is.
type View struct {
	Synced bool
	Age    time.Duration
	// Since is when the first full view came after an outage; zero when there
	// was none since the start.
	Since time.Time
	// Skew is the API server's clock minus this host's, as of now: positive where this
	// host's is behind. It is zero unless SkewKnown: it was measured.
	Skew      time.Duration
	SkewKnown bool
	Problem   string
}

// FreshnessOptions is what the Freshness of one cluster is made from.
type FreshnessOptions struct {
	Watch       Watch
	ViewMaxAge  time.Duration
	SkewMax     time.Duration
	QuietPeriod time.Duration
	Awake       func() suspend.Awake
}

// Freshness says how far the view of a cluster can be relied on, and until when no run
// begins because the view had a gap. // I16
type Freshness struct {
	opt FreshnessOptions

	mu      sync.Mutex
	problem string        // of the view when it was last checked
	quiet   time.Time     // no new run before
	outage  time.Time     // the recovery that quiet already reflects
	awake   suspend.Awake // since the last suspend that quiet reflects,
	suspend string        // how that suspend is described,
	woken   time.Time     // and when it was noticed
}

// NewFreshness knows no outage and no suspend yet.
func NewFreshness(opt FreshnessOptions) *Freshness {
	return &Freshness{opt: opt, awake: opt.Awake()}
}

// View is the watched one. A view from before a suspend is as good as none: like the first
// one after a start it counts once it was proven. The end of a suspend also begins a quiet
// period, like that of an outage: what came meanwhile was missed here. // I16
func (f *Freshness) View() View {
	v := f.opt.Watch.View()
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if why := f.awake.Over(); why != "" {
		f.awake, f.suspend, f.woken = f.opt.Awake(), why, now
		f.quiet = later(f.quiet, now.Add(f.opt.QuietPeriod))
	}
	if !f.woken.IsZero() && now.Sub(f.woken) <= v.Age {
		v.Synced, v.Problem = false, joined(f.suspend, v.Problem)
	}
	return v
}

// Check gives the view and says what is wrong with it, "" when nothing is. An outage that
// has ended begins the quiet period. changed: the view turned bad or good, or an outage
// has ended since the last call.
func (f *Freshness) Check() (v View, problem string, changed bool) {
	v = f.View()
	switch {
	case !v.Synced:
		problem = joined("not synced yet", v.Problem)
	case v.Age > f.opt.ViewMaxAge:
		problem = joined("the view is "+v.Age.Round(time.Second).String()+" old", v.Problem)
	default:
		problem = cmp.Or(f.skewed(v), v.Problem)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = (problem == "") != (f.problem == "")
	f.problem = problem
	if v.Since.After(f.outage) {
		f.outage = v.Since
		f.quiet = later(f.quiet, v.Since.Add(f.opt.QuietPeriod))
		changed = true
	}
	return v, problem, changed
}

// Problem is what was wrong with the view when it was last checked, "" when nothing was.
func (f *Freshness) Problem() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

// QuietUntil is when the quiet period ends, or has ended.
func (f *Freshness) QuietUntil() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.quiet
}

// BeQuiet begins a quiet period at that time, and shortens none. // I16
func (f *Freshness) BeQuiet(from time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet = later(f.quiet, from.Add(f.opt.QuietPeriod))
}

// gaps is when the last outage of the view ended, and when the end of the last suspend of
// this host was noticed; zero when there was none.
func (f *Freshness) gaps() (outage, woken time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outage, f.woken
}

// skewed says by how much this clock is wrong; "" when it is not known to be. // I16
func (f *Freshness) skewed(v View) string {
	if v.Skew.Abs() <= f.opt.SkewMax {
		return ""
	}
	return "this clock and the API server's differ by " + v.Skew.Abs().Round(time.Second).String()
}

// Clock says whether this clock agrees with the API server's, and if it does not, by how
// much it is wrong. // I16
func (f *Freshness) Clock() (agrees remediate.Answer, wrong string) {
	v := f.View()
	wrong = f.skewed(v)
	if !v.SkewKnown {
		return remediate.CannotTell, wrong
	}
	return remediate.Ask(wrong == ""), wrong
}

// Skew is the API server's clock minus this host's, 0 where they agree well enough. seen
// is false while the view is not synced.
func (f *Freshness) Skew() (skew time.Duration, seen bool) {
	v := f.View()
	if f.skewed(v) == "" {
		return 0, v.Synced
	}
	return v.Skew, v.Synced
}

// joined adds what is known about a problem to it.
func joined(text, more string) string {
	if more == "" {
		return text
	}
	return text + "; " + more
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
