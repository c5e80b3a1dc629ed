package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// reloader takes changed files in at SIGHUP. Only its own goroutine uses it.
type reloader struct {
	d    *fenced
	file string
	set  []string
	// running is the configuration of the daemon: that of its start, with the live keys of
	// each reload since.
	running config.Config
	// hosts and policies are what hosts.d and policies.d held then.
	hosts    config.Hosts
	policies manifest.Policies
	// built are the checks of policies.d with which each cluster was built.
	built map[string][]policy.Check
	// orders are those of people, or of systemctl reload, to reload.
	orders chan reloadOrder
	// refused is what the last reload did not take in; nil if it was taken in.
	refused atomic.Pointer[wire.ReloadStatus]
}

// keep reloads at each signal and order until ctx ends, one after the other. systemd hears of a
// reload by a signal: it waits for the end. To who ordered one, the answer is that end.
func (r *reloader) keep(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
			r.d.notify.send(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
			r.reload(ctx, event.Event{})
			r.d.notify.send(daemon.SdNotifyReady)
		case o := <-r.orders:
			o.done <- r.reload(ctx, event.Event{Actor: o.Actor, Why: o.Reason})
		}
	}
}

// reload takes in what the files say now, and tells what became of it. Files with an error
// change nothing; only an entry of hosts.d with an error is taken in, as one that is refused.
func (r *reloader) reload(ctx context.Context, e event.Event) event.Event {
	taken, err := r.takeIn(ctx)
	r.refused.Store(r.refusal(err))
	e.Type, e.Message = event.Reloaded, taken.String()
	if err != nil {
		e.Reason = reason.ReloadRefused
		e.Message = "the reload is refused, and the configuration stays as it was: " + reason.Sentence(err) +
			"; correct this, run fenced --check-config, and reload again"
	}
	r.d.events.Emit(e)
	r.d.notify.refused.Store(err != nil)
	return e
}

// refusal is what people are told of a reload that failed; nil for one that did not.
func (r *reloader) refusal(err error) *wire.ReloadStatus {
	if err == nil {
		return nil
	}
	s := &wire.ReloadStatus{Problem: strings.ReplaceAll(reason.Sentence(err), "\n", "; "), Since: time.Now().UTC(), Next: nextOfReload(err)}
	_, fatal := errors.AsType[configError](err)
	_, wrong := config.Check(r.file, checkPolicies, r.set...)
	switch {
	case fatal || config.Whole(wrong) != nil:
		s.Restart = "a restart would fail"
	case wrong != nil:
		s.Restart = "after a restart nothing would begin in the clusters that it may concern"
	}
	return s
}

// takenIn is what a reload did.
type takenIn struct {
	live, restart []string // the keys that changed
	refused       []string // what is wrong in entries of hosts.d
}

// String says what was taken in, and what needs a restart.
func (t takenIn) String() string {
	text := "reloaded: nothing has changed"
	if len(t.live) > 0 {
		text = "reloaded: took in " + strings.Join(t.live, ", ")
	}
	if len(t.restart) > 0 {
		text += "; these need a restart, and stay as they were until then: " + strings.Join(t.restart, ", ")
	}
	if len(t.refused) > 0 {
		text += "; these hosts are not fenced, because something is wrong in their entries: " + strings.Join(t.refused, "; ") + ": " + wire.CorrectFiles
	}
	return text
}

// add notes what changed in a directory.
func (t *takenIn) add(dir, changes string) {
	if changes != "" {
		t.live = append(t.live, dir+" ("+changes+")")
	}
}

// takeIn checks and reads everything first, and then switches, which cannot fail.
func (r *reloader) takeIn(ctx context.Context) (t takenIn, err error) {
	checked, wrong := config.CheckAndRead(r.file, r.hosts, checkPolicies, r.set...)
	if config.Whole(wrong) != nil {
		return t, wrong
	}
	for _, c := range config.Changes(r.running, checked.Config) {
		if c.Live {
			t.live = append(t.live, c.Key)
		} else {
			t.restart = append(t.restart, c.Key)
		}
	}
	next := config.TakeLive(r.running, checked.Config)
	if err := config.CheckDeadlines(next); err != nil {
		return t, needRestart("the files are right for a restart, but not beside the keys that the daemon keeps until then: restart it instead (%w)", err)
	}
	entries := checked.Hosts.For(next)
	if entries.Unread != nil { // what was read before is safer than nothing: it may say that a host is protected
		return t, entries.Unread
	}
	if errs := config.CheckCredentials(entries.Entries); len(errs) > 0 { // only a restart brings one: until then the entry of before serves
		return t, errors.Join(errs...)
	}
	t.refused = refusedEntries(entries.Entries)
	policies, err := loadPolicies(next)
	if err != nil { // a protection or a budget may be in the file that was not read
		return t, cmp.Or(wrong, err)
	}
	if err := r.unwatchedTemplates(next, policies); err != nil {
		return t, err
	}
	level, err := zapcore.ParseLevel(next.Log.Level)
	if err != nil {
		return t, fmt.Errorf("log level %q: %w", next.Log.Level, err)
	}
	clusters, err := r.d.prepareClusters(ctx, r.running, next, policies) // last: from here on the reload must go on
	if err != nil {
		return t, err
	}
	r.d.level.SetLevel(level) // also if fencectl log-level set another one
	for _, w := range checked.Warnings {
		r.d.log.Warn(w)
	}
	t.add("clusters", clusters.text())
	t.add("hosts.d", config.HostChanges(r.hosts.Entries, entries.Entries))
	r.d.engine.ApplyConfig.Hosts(ctx, newInventory(entries)) // also if only their lines changed, which messages name
	r.d.engine.ApplyConfig.Limits(guardLimits(next.Guards), runLimits(next))
	t.add("policies.d", policyChanges(r.policies, policies))
	for _, c := range next.Clusters {
		checks := checksOf(policies.Checks, c.Name, len(next.Clusters))
		if view := r.d.clusters.views.Get(c.Name); view != nil { // not of one that is added below
			view.ReplaceChecks(checks)
		}
		r.d.engine.ApplyConfig.Policies(c.Name, cluster.Files{Checks: checks, Budgets: budgetsOf(policies.Budgets, c.Name, len(next.Clusters))})
	}
	clusters.apply(ctx) // with the new content of hosts.d
	r.d.sweep.ReadInventory()
	r.running, r.hosts, r.policies = next, entries, policies
	for _, built := range clusters.added {
		r.recordBuilt(built.options.Name)
	}
	for _, name := range clusters.removed {
		delete(r.built, name)
	}
	return t, nil
}

// refusedEntries are what is wrong in the entries that nobody may use, each once.
func refusedEntries(entries []*config.HostEntry) (list []string) {
	for _, e := range entries {
		if e.Refused == nil {
			continue
		}
		for line := range strings.SplitSeq(e.Refused.Error(), "\n") {
			if !slices.Contains(list, line) {
				list = append(list, line)
			}
		}
	}
	return list
}

// recordBuilt records with which checks a cluster was built just now.
func (r *reloader) recordBuilt(cluster string) {
	if r.built == nil {
		r.built = map[string][]policy.Check{}
	}
	r.built[cluster] = checksOf(r.policies.Checks, cluster, len(r.running.Clusters))
}

// unwatchedTemplates refuses checks whose requests a cluster that goes on does not watch.
func (r *reloader) unwatchedTemplates(next config.Config, policies manifest.Policies) error {
	var errs []error
	for name, built := range r.built {
		if !slices.Contains(next.ClusterNames(), name) {
			continue
		}
		apart := slices.ContainsFunc(r.running.Clusters, func(c config.Cluster) bool { return c.Name == name && c.Management.Kubeconfig != "" })
		errs = append(errs, unwatchedTemplates(built, checksOf(policies.Checks, name, len(next.Clusters)), apart))
	}
	return errors.Join(errs...)
}

// clusterChange is what a reload does to the list of clusters.
type clusterChange struct {
	d       *fenced
	added   []builtCluster
	removed []string
	engine  *engine.ClusterChange
}

// prepareClusters builds the clusters that next has and the running configuration has not, and asks
// whether those that it has not can be removed. After an error, nothing has changed. Otherwise the
// caller must call apply, which cannot fail: no run begins in a removed cluster any more.
func (d *fenced) prepareClusters(ctx context.Context, running, next config.Config, policies manifest.Policies) (*clusterChange, error) {
	if err := d.lostByRenaming(running, next); err != nil {
		return nil, err
	}
	added, removed := config.ClusterChanges(running, next)
	ch := &clusterChange{d: d, removed: removed}
	var options []engine.ClusterOptions
	for _, c := range added {
		built, err := d.clusters.build(next, c, policies, "")
		if err != nil {
			return nil, err
		}
		ch.added, options = append(ch.added, built), append(options, built.options)
	}
	var err error
	ch.engine, err = d.engine.ApplyConfig.Clusters(ctx, options, removed)
	return ch, err
}

// maxNamedStops is how many stops a refusal names.
const maxNamedStops = 3

// lostByRenaming refuses to rename a cluster in which somebody has stopped something: a hold belongs to the
// name of its cluster, and the host of a technician would be fenced under the other one. // I23
func (d *fenced) lostByRenaming(running, next config.Config) error {
	var errs []error
	for old, name := range config.Renamed(running, next) {
		stops := d.engine.ApplyConfig.Stops(old)
		if len(stops) == 0 {
			continue
		}
		text := strings.Join(stops[:min(len(stops), maxNamedStops)], "; ")
		if more := len(stops) - maxNamedStops; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		errs = append(errs, fmt.Errorf("cluster %s cannot be renamed to %s: pauses and holds belong to the name of their cluster, and would bind nothing any more (%s): "+
			"pause everything with fencectl pause, end these, rename it, and give them again before you resume", old, name, text))
	}
	return errors.Join(errs...)
}

// apply adds and removes the clusters. It returns when the removed ones have stopped.
func (ch *clusterChange) apply(ctx context.Context) {
	for _, built := range ch.added {
		ch.d.metrics.follow(built.options.Name)
		ch.d.clusters.attach(built)
	}
	ch.engine.Apply(ctx)
	for _, name := range ch.removed {
		ch.d.clusters.detach(name)
		ch.d.metrics.forget(name)
	}
}

// text names the clusters, or is empty for none.
func (ch *clusterChange) text() string {
	var added []string
	for _, built := range ch.added {
		added = append(added, built.options.Name)
	}
	return config.NameChanges(added, ch.removed, nil)
}

// reloadOrder is a reload that somebody waits for.
type reloadOrder struct {
	wire.Order
	done chan event.Event // one, when the reload has ended
}

// order has the reload done, and answers with what became of it.
func (r *reloader) order(ctx context.Context, o wire.Order) (wire.OrderResult, error) {
	asked := reloadOrder{o, make(chan event.Event, 1)}
	select {
	case r.orders <- asked:
	case <-ctx.Done():
		return wire.OrderResult{}, fmt.Errorf("reload; it has not begun: %w", ctx.Err())
	}
	select {
	case e := <-asked.done:
		if e.Reason != "" {
			return wire.OrderResult{}, api.Refused(string(e.Reason), e.Message, "")
		}
		return wire.OrderResult{Message: e.Message}, nil
	case <-ctx.Done():
		return wire.OrderResult{}, fmt.Errorf("reload; it has begun, and the journal will say what became of it: %w", ctx.Err())
	}
}

// mainPID is the variable in which systemd tells ExecReload= who the daemon is.
const mainPID = "MAINPID"

// askReload is fenced --reload, whose files were checked: the daemon takes them in, and the error is why it did
// not. systemd itself learns of no refusal: so ExecReload= fails in its place.
func askReload(c config.Config, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	done, err := api.New(c.Control.Socket).Do(ctx, wire.Order{Verb: wire.Reload, Reason: "fenced --reload"})
	if err == nil {
		fmt.Fprintln(stdout, done.Value.Message)
		return nil
	}
	answer, answered := errors.AsType[*api.Error](err)
	older := answered && answer.Code == api.CodeNotFound
	if pid := os.Getenv(mainPID); pid != "" && (older || errors.Is(err, api.ErrUnreachable)) {
		return signalReload(pid, err, stdout)
	}
	if !answered {
		return fmt.Errorf("reload fenced: %w; is it running, and is control.socket of %s still that of its start? systemctl status fenced", err, c.File)
	}
	return fmt.Errorf("reload fenced: %w", err)
}

// signalReload reloads a daemon that cannot be asked: its socket is at another path than the files say now, or
// it is of an older version.
func signalReload(pid string, why error, stdout io.Writer) error {
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 1 {
		return fmt.Errorf("reload fenced: %w; and %s=%q names no process", why, mainPID, pid)
	}
	if err := syscall.Kill(n, syscall.SIGHUP); err != nil {
		return fmt.Errorf("reload fenced: %w; and signal process %d: %w", why, n, err)
	}
	fmt.Fprintf(stdout, "the daemon was told by a signal, for it cannot be asked (%v): the journal says what became of it\n", why)
	return nil
}
