package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// How often the daemon is asked, once for all tabs: at most every readPause while something happens, and every idlePause
// while nothing does. Devices change slowly. What costs time is asked less often, so that the page takes no more than a
// quarter of the daemon's time for viewers.
const (
	readPause = time.Second
	idlePause = 5 * time.Second
	bmcsPause = 10 * time.Second
	logPause  = 30 * time.Second // of the audit log, for one run; longer for one that takes long
	logShare  = 10
	logTime   = 10 * time.Second // for the audit log: all tabs wait for it
	awayPause = 15 * time.Second // of a daemon that is away for longer
	readShare = 4
	readTime  = time.Minute // for one answer
	keepView  = time.Minute // of a page that nobody looks at
	maxViews  = 64
)

// place is what a page is about: the overview, a Node, a Machine or a run.
type place struct{ kind, cluster, name string }

// view is a page as it was drawn last.
type view struct {
	title   string
	link    *part
	main    *part
	status  int // of HTTP
	rev     uint64
	readers int           // its streams
	used    time.Time     // when it was asked for last
	changed chan struct{} // closed with the next change
}

// hub reads the daemon and keeps the views up to date.
type hub struct {
	client  *api.Client
	cluster string // empty: all
	wake    chan struct{}
	refuse  context.CancelCauseFunc // ends the page

	reading  chan struct{} // who has its one place reads and draws
	snap     *snapshot
	bmcsAt   time.Time
	readTook time.Duration // the last read
	failed   error         // of the last read, which ended at failedAt
	failedAt time.Time
	ids      *names
	away     away
	logs     map[string]readLog // by run
	logTime  time.Duration

	mu    sync.Mutex
	rev   uint64
	views map[place]*view
}

// away is since when the daemon does not answer, and why; zero while it does.
type away struct {
	At      time.Time // of the last answer
	Since   time.Time
	Problem string
}

func newHub(client *api.Client, cluster string, refuse context.CancelCauseFunc) *hub {
	return &hub{client: client, cluster: cluster, refuse: refuse, wake: make(chan struct{}, 1), reading: make(chan struct{}, 1),
		ids: &names{ids: map[string]string{}, used: map[string]string{}}, views: map[place]*view{}, logs: map[string]readLog{}, logTime: logTime}
}

// listen wakes the hub with each event of the daemon. One that is away is asked less and less often: over ssh, to ask is to
// log in.
func (h *hub) listen(ctx context.Context) {
	for again := readPause; ctx.Err() == nil; again = min(2*again, awayPause) {
		for _, err := range h.client.Events(ctx, 0) {
			if err != nil {
				break
			}
			again = readPause
			h.wakeUp()
		}
		h.wakeUp() // the stream broke: is the daemon there?
		live.Sleep(ctx, again)
	}
}

func (h *hub) wakeUp() { live.Signal(h.wake) }

// run keeps what somebody looks at up to date.
func (h *hub) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-time.After(idlePause):
		}
		for _, p := range h.watched() {
			_, _ = h.look(ctx, p) // what went wrong stands in the page
		}
		live.Sleep(ctx, h.rest())
	}
}

// rest is how long the daemon is left alone after a read, or after a try.
func (h *hub) rest() time.Duration {
	h.reading <- struct{}{}
	defer func() { <-h.reading }()
	if !h.away.Since.IsZero() {
		return min(max(readPause, time.Since(h.away.Since)/2), awayPause)
	}
	return max(readPause, (readShare-1)*h.readTook)
}

// watched are the places that have readers. Views without one are forgotten after a while.
func (h *hub) watched() (list []place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, v := range h.views {
		switch {
		case v.readers > 0:
			list = append(list, p)
		case time.Since(v.used) > keepView:
			delete(h.views, p)
		}
	}
	return list
}

var errTooManyPages = errors.New("too many pages are open")

// look reads the daemon, if what is known is older than readPause, and draws the place.
func (h *hub) look(ctx context.Context, p place) (view, error) {
	select {
	case h.reading <- struct{}{}:
	case <-ctx.Done():
		return view{}, ctx.Err()
	}
	defer func() { <-h.reading }()
	reading, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	now := time.Now()
	err := h.refresh(reading, now)
	d := drawing{title: "fenced", status: http.StatusOK}
	if err == nil {
		err = h.drawPlace(reading, p, &d)
	}
	if ctx.Err() != nil { // who asked has gone: that says nothing about the daemon
		return view{}, ctx.Err()
	}
	// A socket that cannot be opened any more, without an answer, may be that of a daemon that starts.
	if e, refused := errors.AsType[*api.Error](err); refused && e.Status == http.StatusForbidden && (len(e.Body) > 0 || h.away.At.IsZero()) {
		h.refuse(err)
	}
	h.note(err, now)
	return h.keep(p, d, now)
}

// note keeps whether the daemon answers.
func (h *hub) note(err error, now time.Time) {
	switch {
	case err == nil:
		h.away = away{At: now}
	case h.away.Since.IsZero():
		h.away = away{At: h.away.At, Since: now, Problem: err.Error()}
	default:
		h.away.Problem = err.Error()
	}
}

// refresh reads what all pages share. A failure counts for all tabs for readPause: over ssh, each try is a login.
func (h *hub) refresh(ctx context.Context, now time.Time) error {
	switch {
	case h.failed != nil && now.Sub(h.failedAt) < readPause:
		return h.failed
	case h.snap != nil && h.away.Since.IsZero() && now.Sub(h.snap.at) < readPause:
		return nil
	}
	err := h.readAll(ctx, now)
	if h.failed, h.failedAt = err, time.Now(); errors.Is(err, context.Canceled) {
		h.failed = nil // who asked has gone
	}
	return err
}

// readAll reads it from the daemon.
func (h *hub) readAll(ctx context.Context, now time.Time) error {
	st, err := h.client.Status(ctx)
	if err != nil {
		return err
	}
	nodes, err := h.client.UrgentNodes(ctx, h.cluster, maxCells)
	if e, refused := errors.AsType[*api.Error](err); err != nil && !(refused && e.Code == string(reason.NotSynced)) { // what is not seen the status says
		return err
	}
	next := &snapshot{at: now, status: onlyCluster(st.Value, h.cluster), nodes: nodes}
	bmcsAt := h.bmcsAt // with h.snap alone: what else fails must not lose the devices
	if h.snap != nil {
		next.bmcs = h.snap.bmcs
	}
	if now.Sub(bmcsAt) >= bmcsPause {
		bmcs, err := h.readBMCs(ctx)
		if err != nil {
			return err
		}
		next.bmcs, bmcsAt = bmcs.Value.BMCs, now
	}
	if h.cluster != "" {
		accounts := keepIf(next.status.BMCs.Accounts, func(a wire.RefusedAccount) bool { return a.Cluster == h.cluster })
		next.status.BMCs = wire.BMCs{BMCs: next.bmcs}.Count()
		next.status.BMCs.Accounts = accounts
	}
	if next.runs, err = h.openRuns(ctx, next.status.Runs); err != nil {
		return err
	}
	h.snap, h.bmcsAt, h.readTook = next, bmcsAt, time.Since(now)
	return nil
}

// readBMCs reads those that the overview names. The page of one cluster reads all of it, because it counts them itself.
func (h *hub) readBMCs(ctx context.Context) (api.Reply[wire.BMCs], error) {
	if h.cluster != "" {
		return h.client.BMCs(ctx, h.cluster)
	}
	return h.client.UndependableBMCs(ctx)
}

// openRuns reads those that are shown step by step, but for those that stand still as before.
func (h *hub) openRuns(ctx context.Context, list []wire.RunStatus) (map[string]wire.RunRecord, error) {
	runs := map[string]wire.RunRecord{}
	for _, r := range list[:min(len(list), maxRuns)] {
		if known, ok := h.unchangedRun(r); ok {
			runs[r.ID] = known
			continue
		}
		tl, err := h.client.Run(ctx, r.ID)
		if e, gone := errors.AsType[*api.Error](err); gone && e.Status == http.StatusNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		runs[r.ID] = tl.Value.Runs[0]
	}
	return runs, nil
}

func (h *hub) unchangedRun(r wire.RunStatus) (wire.RunRecord, bool) {
	if h.snap == nil || wire.StepNumber(r.Step) > 0 {
		return wire.RunRecord{}, false
	}
	before := slices.IndexFunc(h.snap.status.Runs, func(b wire.RunStatus) bool { return b.ID == r.ID })
	known, ok := h.snap.runs[r.ID]
	return known, ok && before >= 0 && reflect.DeepEqual(h.snap.status.Runs[before], r)
}

// onlyCluster leaves out what is of another cluster.
func onlyCluster(st wire.Status, cluster string) wire.Status {
	if cluster == "" {
		return st
	}
	st.Clusters = keepIf(st.Clusters, func(c wire.ClusterStatus) bool { return c.Name == cluster })
	st.Runs = keepIf(st.Runs, func(r wire.RunStatus) bool { return r.Cluster == cluster })
	st.Blocked = keepIf(st.Blocked, func(b wire.Blocked) bool { return b.Cluster == cluster })
	st.Recent = keepIf(st.Recent, func(r wire.RecentRun) bool { return r.Cluster == cluster })
	return st
}

func keepIf[T any](list []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool { return !keep(v) })
}

// drawing is a page that was drawn.
type drawing struct {
	title  string
	main   *part
	status int
}

// drawPlace draws a page from the snapshot, and from what is read for it alone.
func (h *hub) drawPlace(ctx context.Context, p place, d *drawing) (err error) {
	now := time.Now()
	switch p.kind {
	case "run":
		d.title = "Run " + p.name
		tl, err := h.client.Run(ctx, p.name)
		if err == nil && h.leavesOut(tl.Value.Runs[0].Cluster) {
			return d.elsewhere(h.cluster)
		}
		if err == nil {
			d.main, err = runPage(tl.Value, h.auditOf(ctx, tl.Value.Runs[0]), now)
			return err
		}
		return d.unknown(err)
	case "node", "machine":
		d.title = p.name
		if h.leavesOut(p.cluster) {
			return d.elsewhere(h.cluster)
		}
		r, err := h.readNode(ctx, p)
		if err == nil {
			d.main, err = nodePage(r, now)
			return err
		}
		return d.unknown(err)
	}
	d.main, err = overview(h.snap, h.ids, now)
	return err
}

// leavesOut reports whether the page shows nothing of a cluster.
func (h *hub) leavesOut(cluster string) bool {
	return h.cluster != "" && cluster != "" && cluster != h.cluster
}

// elsewhere draws that what was asked for is not in the only cluster that is shown.
func (d *drawing) elsewhere(shown string) (err error) {
	d.status = http.StatusNotFound
	d.main, err = messagePage(message{Title: d.title, Text: "It is in another cluster. This page shows " + shown + " alone.", Back: true})
	return err
}

// unknown draws that the daemon does not know what was asked for; any other error is the caller's.
func (d *drawing) unknown(err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Status < 400 || e.Status >= 500 || e.Status == http.StatusForbidden {
		return err
	}
	d.status = e.Status
	d.main, err = messagePage(message{Title: d.title, Text: e.Message, Hint: e.Hint, Back: true})
	return err
}

// readLog is what the audit log had about a run.
type readLog struct {
	at    time.Time
	next  time.Time // not again before
	run   wire.RunRecord
	audit *Audit
}

// auditOf reads the audit log anew only if the run went on since, and not often: a log may be long.
func (h *hub) auditOf(ctx context.Context, r wire.RunRecord) *Audit {
	now := time.Now()
	maps.DeleteFunc(h.logs, func(_ string, l readLog) bool { return now.Sub(l.at) > 10*logPause })
	known, ok := h.logs[r.ID]
	if ok && (now.Before(known.next) || known.audit.Problem == "" && reflect.DeepEqual(known.run, r)) {
		return known.audit
	}
	reading, cancel := context.WithTimeout(ctx, h.logTime)
	defer cancel()
	log := ReadAudit(reading, h.client, r)
	switch {
	case ctx.Err() != nil: // who asked has gone, or has waited for long
		return log
	case reading.Err() != nil:
		log.Problem = fmt.Sprintf("to read it takes longer than %s; fencectl timeline %s -o html reads it to its end", h.logTime, r.ID)
	}
	h.logs[r.ID] = readLog{now, now.Add(max(logPause, logShare*time.Since(now))), r, log}
	return log
}

// message is a page with a sentence in place of what was asked for.
type message struct {
	Title, Text, Hint string
	Back              bool
}

func messagePage(m message) (*part, error) {
	d := draft{}
	return &part{id: "main", parts: []*part{d.leaf("s-message", "plainmessage", m)}}, d.err
}

func (h *hub) readNode(ctx context.Context, p place) (r nodeRead, err error) {
	cluster := cmp.Or(p.cluster, h.cluster)
	x, err := h.client.Explain(ctx, cluster, p.name)
	if err != nil {
		return r, err
	}
	tl, err := h.client.NodeTimeline(ctx, cluster, p.name)
	if err != nil {
		return r, err
	}
	bmcs, err := h.client.BMCsOf(ctx, x.Value.Cluster, cmp.Or(x.Value.Node, x.Value.Machine))
	if err != nil {
		return r, err
	}
	r.explain, r.timeline = x.Value, tl.Value
	of := func(cluster, node, machine string) bool {
		return cluster == x.Value.Cluster && (node != "" && node == x.Value.Node || node == "" && machine != "" && machine == x.Value.Machine)
	}
	machines := []string{x.Value.Machine} // a hold of the Machine is one of its Node
	for i := range bmcs.Value.BMCs {
		if b := &bmcs.Value.BMCs[i]; of(b.Cluster, b.Node, b.Machine) {
			r.bmcs, machines = append(r.bmcs, *b), append(machines, b.Machine)
		}
	}
	known := h.snap.nodes.Nodes
	isThis := func(n wire.Node) bool { return of(n.Cluster, n.Node, n.Machine) }
	if h.snap.nodes.More > 0 && !slices.ContainsFunc(known, isThis) { // not one of the most urgent
		found, err := h.client.NodeOf(ctx, x.Value.Cluster, cmp.Or(x.Value.Node, x.Value.Machine))
		if err != nil {
			return r, err
		}
		known = found.Nodes
	}
	if i := slices.IndexFunc(known, isThis); i >= 0 {
		r.node = &known[i]
	}
	for _, c := range h.snap.status.Clusters {
		for _, held := range c.Holds {
			if of(c.Name, held.Node, held.Machine) || c.Name == x.Value.Cluster && held.Machine != "" && slices.Contains(machines, held.Machine) {
				r.holds = append(r.holds, held)
			}
		}
	}
	return r, nil
}

// keep makes the drawing the view of the place. Without one, because the daemon is away, the view stays as it was.
func (h *hub) keep(p place, d drawing, now time.Time) (view, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, known := h.views[p]
	if !known {
		if len(h.views) >= maxViews && !h.forgetOne() {
			return view{}, errTooManyPages
		}
		v = &view{changed: make(chan struct{})}
	}
	link := draft{}
	newLink := link.leaf("link", "link", h.away)
	err := link.err
	if d.main == nil && v.main == nil {
		d.status = http.StatusServiceUnavailable
		d.main, err = messagePage(message{Title: d.title, Text: "fenced does not answer. The page goes on when it is back."})
	}
	if err != nil {
		return view{}, err
	}
	h.rev++
	if d.main != nil {
		d.main.open, d.main.shut = `<main id="main" tabindex="-1">`, "</main>"
		if err := d.main.follow(v.main, h.rev); err != nil {
			return view{}, err
		}
		v.main, v.title, v.status = d.main, d.title, d.status
	}
	if err := newLink.follow(v.link, h.rev); err != nil {
		return view{}, err
	}
	v.link, v.rev, v.used = newLink, h.rev, now
	h.views[p] = v
	close(v.changed)
	v.changed = make(chan struct{})
	return *v, nil
}

// forgetOne forgets the view that nobody looks at for the longest time, and reports whether there was one. The caller has the lock.
func (h *hub) forgetOne() bool {
	var oldest place
	found := false
	for p, v := range h.views {
		if v.readers == 0 && (!found || v.used.Before(h.views[oldest].used)) {
			oldest, found = p, true
		}
	}
	delete(h.views, oldest)
	return found
}

// attach counts a reader of a place; detach ends that.
func (h *hub) attach(p place) (detach func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, known := h.views[p]
	if !known {
		return nil, false
	}
	v.readers++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		v.readers--
		v.used = time.Now()
	}, true
}

// since returns what changed after rev, and a channel that is closed with the next change.
func (h *hub) since(p place, rev uint64) (list []change, now uint64, next <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.views[p]
	return v.main.since(rev, v.link.since(rev, nil)), v.rev, v.changed
}

// whole is the HTML of a view.
func (v view) whole() (link, main string) {
	var a, b strings.Builder
	v.link.write(&a)
	v.main.write(&b)
	return a.String(), b.String()
}
