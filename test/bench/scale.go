package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/kube"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// ScaleOptions size a measurement of one daemon from few Nodes to very many, on the Kubernetes API in memory.
type ScaleOptions struct {
	Nodes   int // each with a Machine, and a BMC in hosts.d
	Rate    int // Node status updates per second
	Window  time.Duration
	Samples int           // hosts that are made to fail, one after another
	Sweep   time.Duration // sweep.interval of the second daemon, which reads every BMC; 0 for none
	// Rounds is for how many intervals the health check is measured, after the first.
	Rounds int
	// Fenced and Fencectl are the programs; built if empty.
	Programs scene.Programs
	Progress io.Writer
}

// ScaleResult is what was measured.
type ScaleResult struct {
	ScaleOptions
	Start    time.Duration   // from the start of the process until it is armed and has evaluated all
	StartCPU time.Duration   // that it used until then
	Floor    time.Duration   // that a client takes which only receives and decodes the Nodes and Machines
	Usage                    // without the health check
	Decision []time.Duration // from the end of a timeout to the first datagram at the BMC
	// Reload is fenced --reload, which checks the files, too, of a hosts.d in which an entry had changed; Order is what of it the daemon takes. Status and Plan are fencectl's; Page is from the request for the page to its end, the
	// first time, and Again the next.
	Reload, Order, Status, Plan, Page, Again time.Duration
	// StatusCPU, PageCPU and AgainCPU are what the daemon used in these times, also for the updates.
	StatusCPU, PageCPU, AgainCPU time.Duration
	PageSize                     int
	// Checked is how many BMCs were read in the rounds; Polls how many reads that were per interval.
	Checked int
	Polls   float64
	Sweeps  Usage
}

// scale is one measurement while it runs.
type scale struct {
	ScaleOptions
	dir       string
	api, bmcs *world
	ports     int
	kube      *kube.Client
	machines  dynamic.Interface
	fleet     worldAnswer
	load      load
	result    ScaleResult
}

// maxScale is for how many hosts there are addresses of BMCs.
const maxScale = 8_000_000

// scaleTime bounds the measurement of one size.
const scaleTime = 30 * time.Minute

// MeasureScale measures one size. It is an error when fenced acted on anything but the hosts that were made to fail.
func MeasureScale(ctx context.Context, o ScaleOptions) (r *ScaleResult, err error) {
	if o.Samples < 1 || o.Rate < 1 || o.Nodes < 3*o.Samples || o.Nodes > maxScale || o.Window < time.Second || o.Sweep > 0 && o.Rounds < 1 {
		return nil, fmt.Errorf("at least one sample, three Nodes for each, at most %d Nodes, one update a second, a window of 1s and one round are needed", maxScale)
	}
	ctx, cancel := context.WithTimeout(ctx, scaleTime)
	defer cancel()
	s := &scale{ScaleOptions: o, result: ScaleResult{ScaleOptions: o}}
	if s.dir, err = os.MkdirTemp("", "fenced-scale-"); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer keepLogs(s.dir, &err)
	if s.Programs.Fenced == "" {
		if s.Programs, err = scene.Build(ctx, s.dir, false); err != nil {
			return nil, err
		}
	}
	if err := s.build(); err != nil {
		return nil, err
	}
	defer s.api.end()
	defer s.bmcs.end()
	if err := s.measure(ctx); err != nil {
		return nil, err
	}
	return &s.result, nil
}

func (s *scale) tell(format string, args ...any) {
	fmt.Fprintf(s.Progress, "bench: %d Nodes: %s\n", s.Nodes, fmt.Sprintf(format, args...))
}

func (s *scale) path(name string) string { return filepath.Join(s.dir, name) }

// build starts what is around the daemon.
func (s *scale) build() (err error) {
	s.tell("making the API, the Nodes, the Machines and the BMCs")
	if s.bmcs, err = startWorld(s.dir, bmcsWord); err != nil {
		return err
	}
	if s.api, err = startWorld(s.dir, apiWord); err != nil {
		s.bmcs.end()
		return err
	}
	defer func() {
		if err != nil {
			s.bmcs.end()
			s.api.end()
		}
	}()
	bmcs, err := s.bmcs.ask(worldOrder{})
	if err != nil {
		return err
	}
	s.ports = bmcs.Port
	if s.fleet, err = s.api.ask(worldOrder{Dir: s.dir, Nodes: s.Nodes}); err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", s.fleet.Admin)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	cfg.QPS, cfg.ContentType = -1, "application/vnd.kubernetes.protobuf"
	if s.kube, err = kube.NewForConfig(cfg); err != nil {
		return err
	}
	if s.machines, err = dynamic.NewForConfig(cfg); err != nil {
		return err
	}
	s.load = load{nodes: s.Nodes - s.Samples, rate: s.Rate, update: s.update}
	return s.writeFiles()
}

const scaleConfiguration = configuration + `power: {offDeadline: 1m}
`

// scaleSettings are those of the configuration that differ here. The one namespace that the daemon reads is not a tenant's: its checks may have more than
// 100,000 targets.
func scaleSettings(sweep time.Duration) *strings.Replacer {
	return strings.NewReplacer("sweep: {interval: 0s}", fmt.Sprintf("sweep: {interval: %s}", sweep),
		"mode: evaluate}", fmt.Sprintf("mode: evaluate, namespaces: [%s]}", rig.Namespace))
}

// hostsInFile is how many entries a file of hosts.d has, as those of a few racks.
const hostsInFile = 1000

func (s *scale) writeFiles() error {
	if err := os.Mkdir(s.path("policies.d"), 0o700); err != nil {
		return fmt.Errorf("make policies.d: %w", err)
	}
	if err := rig.WriteFiles(s.dir, map[string][]byte{"password": []byte(password)}); err != nil {
		return err
	}
	for from := 0; from < s.Nodes; from += hostsInFile {
		if err := s.writeHosts(from, ""); err != nil {
			return err
		}
	}
	return nil
}

// writeHosts writes one file of hosts.d. more is added to its first entry.
func (s *scale) writeHosts(from int, more string) error {
	var text strings.Builder
	text.WriteString("hosts:\n")
	for i := from; i < min(from+hostsInFile, s.Nodes); i++ {
		fmt.Fprintf(&text, "  - node: %s\n%s    bmc: {address: \"ipmi://%s:%d\", username: %s, passwordFile: %s}\n",
			scaleName(i), more, ipmisim.ManyAddress(i), s.ports, user, s.path("password"))
		more = ""
	}
	return rig.WriteFiles(s.dir, map[string][]byte{fmt.Sprintf("hosts.d/%06d.yaml", from): []byte(text.String())})
}

// measure measures while updates are posted; an update that fails ends it.
func (s *scale) measure(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.load.run(ctx) })
	g.Go(func() error {
		defer cancel() // ends the load
		if err := s.withoutSweep(ctx); err != nil || s.Sweep == 0 {
			return err
		}
		return s.withSweep(ctx)
	})
	return g.Wait()
}

func (s *scale) start(ctx context.Context, sweep time.Duration, healthy int) (*process, time.Duration, error) {
	text := fmt.Sprintf(scaleConfiguration, clusterName, s.fleet.Kubeconfig, s.path("fenced.sock"), 2*s.Samples+1)
	if err := rig.WriteFiles(s.dir, map[string][]byte{"fenced.yaml": []byte(scaleSettings(sweep).Replace(text))}); err != nil {
		return nil, 0, err
	}
	s.tell("starting fenced under %d updates/s", s.Rate)
	began := time.Now()
	p, err := startProcess(s.dir, "fenced", s.Programs.Fenced, "--config", s.path("fenced.yaml"))
	if err != nil {
		return nil, 0, err
	}
	if err := p.awaitStatus(ctx, s.path("fenced.sock"), func(st wire.Status) error {
		if n := healthyTargets(st); !st.Armed || n < healthy {
			return fmt.Errorf("armed %t, %d of %d targets healthy", st.Armed, n, healthy)
		}
		return nil
	}); err != nil {
		p.stop()
		return nil, 0, err
	}
	return p, time.Since(began), nil
}

// floor measures client-go as it receives what the daemon receives at its start, from the same API under the same updates, and does nothing with it.
func (s *scale) floor(ctx context.Context) error {
	s.tell("receiving the Nodes and Machines with client-go alone")
	all := true
	o := metav1.ListOptions{SendInitialEvents: &all, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, begin := range []func(context.Context, metav1.ListOptions) (watch.Interface, error){s.kube.CoreV1().Nodes().Watch, s.machines.Resource(rig.MachineResource).Watch} {
		g.Go(func() error {
			w, err := begin(ctx, o)
			if err != nil {
				return fmt.Errorf("watch all objects: %w", err)
			}
			defer w.Stop()
			return s.receive(w)
		})
	}
	err := g.Wait()
	s.result.Floor = time.Since(began)
	return err
}

// receive reads the events of a watch until all objects have come.
func (s *scale) receive(w watch.Interface) error {
	objects := 0
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Added:
			objects++
		case watch.Bookmark:
			if objects < s.Nodes {
				return fmt.Errorf("%d objects came, not %d", objects, s.Nodes)
			}
			return nil
		}
	}
	return errors.New("a watch ended early")
}

// withoutSweep measures all but the health check, which would hide who else asks a BMC.
func (s *scale) withoutSweep(ctx context.Context) error {
	if err := s.floor(ctx); err != nil {
		return err
	}
	p, took, err := s.start(ctx, 0, s.Nodes)
	if err != nil {
		return err
	}
	defer p.stop()
	s.result.Start = took
	if s.result.StartCPU, err = p.cpuTime(); err != nil {
		return err
	}
	if !rig.Sleep(ctx, 5*time.Second) {
		return ctx.Err()
	}
	if s.result.Usage, err = p.usage(ctx, s.Window, &s.load.done); err == nil {
		err = s.people(ctx, p)
	}
	if err == nil {
		err = s.decisions(ctx)
	}
	if err == nil {
		err = s.spared()
	}
	if err != nil {
		return fmt.Errorf("%w\nthe end of fenced's log:\n%s", err, p.logTail())
	}
	peak, err := p.peak() // with the runs, the reload and the answers in it
	s.result.Peak = max(s.result.Peak, peak)
	return err
}

// people measures what a person waits for.
func (s *scale) people(ctx context.Context, p *process) (err error) {
	s.tell("fencectl status, plan and ui, and a reload")
	socket := []string{"--socket", s.path("fenced.sock")}
	if s.result.StatusCPU, err = p.used(func() (err error) {
		s.result.Status, err = timed(ctx, s.Programs.Fencectl, append(socket, "status")...)
		return err
	}); err != nil {
		return err
	}
	if s.result.Plan, err = timed(ctx, s.Programs.Fencectl, append(socket, "plan")...); err != nil {
		return err
	}
	if err := s.page(ctx, p); err != nil {
		return err
	}
	if err := s.writeHosts(0, "    protected: true\n"); err != nil {
		return err
	}
	if s.result.Reload, err = timed(ctx, s.Programs.Fenced, "--config", s.path("fenced.yaml"), "--reload"); err != nil {
		return err
	}
	if err := s.writeHosts(0, ""); err != nil {
		return err
	}
	client, began := api.New(s.path("fenced.sock")), time.Now()
	defer client.End()
	if _, err = client.Do(ctx, wire.Order{Verb: wire.Reload, Reason: "it is measured"}); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	s.result.Order = time.Since(began)
	return nil
}

func timed(ctx context.Context, program string, args ...string) (time.Duration, error) {
	began := time.Now()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	const degraded = 2 // fencectl status says so when the view is old, as on a busy machine
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !(ok && exit.ExitCode() == degraded && args[len(args)-1] == "status") {
		return 0, fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, out[:min(len(out), 4096)])
	}
	return time.Since(began), nil
}

var pageAddress = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\S*`)

// page reads the page of fencectl ui twice, as a browser does that has it shown again.
func (s *scale) page(ctx context.Context, p *process) error {
	ui, err := startProcess(s.dir, "ui", s.Programs.Fencectl, "--socket", s.path("fenced.sock"), "ui")
	if err != nil {
		return err
	}
	defer ui.stop()
	address := ""
	for address == "" {
		if ui.ended() || !rig.Sleep(ctx, startPoll) {
			return fmt.Errorf("start fencectl ui: %s", ui.logTail())
		}
		address = pageAddress.FindString(ui.logTail())
	}
	jar, _ := cookiejar.New(nil) // without options it cannot fail
	browser := &http.Client{Jar: jar}
	for _, of := range []struct{ took, cpu *time.Duration }{{&s.result.Page, &s.result.PageCPU}, {&s.result.Again, &s.result.AgainCPU}} {
		began := time.Now()
		if *of.cpu, err = p.used(func() (err error) {
			address, s.result.PageSize, err = fetch(ctx, browser, address)
			*of.took = time.Since(began)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// fetch returns where the page is, after redirects, and its length.
func fetch(ctx context.Context, browser *http.Client, address string) (at string, size int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", 0, err
	}
	resp, err := browser.Do(req)
	if err != nil {
		return "", 0, fmt.Errorf("read the page: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return "", 0, fmt.Errorf("read the page: %w", err)
	}
	return resp.Request.URL.String(), len(body), nil
}

// decisions makes one host after the other fail, and measures from the end of the timeout to the first datagram at its BMC.
func (s *scale) decisions(ctx context.Context) error {
	s.tell("failing %d hosts, one after another", s.Samples)
	deadlines, numbers := make([]time.Time, s.Samples), make([]int, s.Samples)
	for i := range s.Samples {
		if !rig.Sleep(ctx, time.Until(time.Now().Truncate(time.Second).Add(stride))) {
			return ctx.Err()
		}
		since := time.Now().Truncate(time.Second) // a condition has no fractions of a second
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":%q}]}}`, since.UTC().Format(time.RFC3339))
		if err := s.patch(ctx, i, patch); err != nil {
			return err
		}
		if late := time.Since(since); late > scaleTimeout-warning {
			return fmt.Errorf("make Node %s fail: that took until %s after its second began, too near to its deadline", scaleName(i), late)
		}
		deadlines[i], numbers[i] = since.Add(scaleTimeout), i
	}
	for began := time.Now(); ; {
		a, err := s.bmcs.ask(worldOrder{First: numbers})
		if err != nil {
			return err
		}
		asked := 0
		for _, at := range a.First {
			if !at.IsZero() {
				asked++
			}
		}
		if asked == s.Samples {
			for i, at := range a.First {
				s.result.Decision = append(s.result.Decision, at.Sub(deadlines[i]))
			}
			return nil
		}
		if time.Since(began) > patience || !rig.Sleep(ctx, stride/4) {
			return fmt.Errorf("wait until the BMCs of the hosts that failed are asked: %d of %d were", asked, s.Samples)
		}
	}
}

func (s *scale) patch(ctx context.Context, number int, patch string) error {
	_, err := s.kube.CoreV1().Nodes().Patch(ctx, scaleName(number), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("update the status of a Node: %w", err)
	}
	return nil
}

// spared is an error when fenced did something to a host that nothing was wrong with.
func (s *scale) spared() error {
	var failed []string
	for i := range s.Samples {
		failed = append(failed, scaleName(i))
	}
	done, err := s.api.ask(worldOrder{Spared: failed})
	if err != nil {
		return err
	}
	if len(done.Deleted) > 0 {
		return fmt.Errorf("%d objects that nothing was wrong with were deleted, %s first", len(done.Deleted), done.Deleted[0])
	}
	power, err := s.bmcs.ask(worldOrder{})
	if err != nil {
		return err
	}
	for _, number := range power.Switched {
		if number >= s.Samples {
			return fmt.Errorf("a host that nothing was wrong with was switched: %s", scaleName(number))
		}
	}
	if power.BMCs > s.Samples && s.result.Checked == 0 {
		return fmt.Errorf("%d BMCs were asked, and %d hosts had failed", power.BMCs, s.Samples)
	}
	return nil
}

// withSweep measures a daemon that reads every BMC once in each interval.
func (s *scale) withSweep(ctx context.Context) error {
	p, _, err := s.start(ctx, s.Sweep, s.Nodes-s.Samples)
	if err != nil {
		return err
	}
	defer p.stop()
	s.tell("reading every BMC each %s", s.Sweep)
	if !rig.Sleep(ctx, s.Sweep+10*time.Second) { // the first read of each also asks what it is
		return ctx.Err()
	}
	if _, err := s.bmcs.ask(worldOrder{Reset: true}); err != nil {
		return err
	}
	// The jitter between two polls of a BMC makes the mean interval 1.1 of the one that is asked for.
	if s.result.Sweeps, err = p.usage(ctx, time.Duration(s.Rounds)*s.Sweep*11/10, &s.load.done); err != nil {
		return err
	}
	a, err := s.bmcs.ask(worldOrder{})
	if err != nil {
		return err
	}
	s.result.Checked, s.result.Polls = a.BMCs, float64(a.Statuses)/float64(s.Rounds)
	if err := s.spared(); err != nil {
		return fmt.Errorf("%w\nthe end of fenced's log:\n%s", err, p.logTail())
	}
	return nil
}

// update is an update of a Node that is not made to fail.
func (s *scale) update(ctx context.Context, number int, turned bool) error {
	now := time.Now().UTC().Format(time.RFC3339)
	change := fmt.Sprintf(`"lastHeartbeatTime":%q`, now)
	if turned {
		change += fmt.Sprintf(`,"lastTransitionTime":%q,"status":"True","message":"kubelet has little memory left"`, now)
	}
	return s.patch(ctx, s.Samples+number, fmt.Sprintf(`{"status":{"conditions":[{"type":"MemoryPressure",%s}]}}`, change))
}

// scaleBound is a bound of one figure for one number of Nodes.
type scaleBound struct {
	nodes int
	bound float64
}

// scaleRow is one line of the table.
type scaleRow struct {
	what   string
	figure func(*ScaleResult) (value float64, ok bool)
	show   func(float64) string
	bounds []scaleBound // of these sizes; a size of 0 is every one
}

func shownSeconds(v float64) string { return fmt.Sprintf("%.2f s", v) }

func shownMebi(v float64) string { return fmt.Sprintf("%.0f MiB", v/(1<<20)) }

func secondsOf(f func(*ScaleResult) time.Duration) func(*ScaleResult) (float64, bool) {
	return func(r *ScaleResult) (float64, bool) { return f(r).Seconds(), true }
}

func bytesOf(f func(*ScaleResult) int64) func(*ScaleResult) (float64, bool) {
	return func(r *ScaleResult) (float64, bool) { return float64(f(r)), f(r) > 0 }
}

// scaleRows are the lines of the table, with the bounds of docs/performance.md.
var scaleRows = []scaleRow{
	{"start to armed, all evaluated", secondsOf(func(r *ScaleResult) time.Duration { return r.Start }), shownSeconds, []scaleBound{{100_000, 10}}},
	{"CPU time until then", secondsOf(func(r *ScaleResult) time.Duration { return r.StartCPU }), shownSeconds, nil},
	{"client-go alone, which only receives and decodes the same", secondsOf(func(r *ScaleResult) time.Duration { return r.Floor }), shownSeconds, nil},
	{"resident", bytesOf(func(r *ScaleResult) int64 { return r.RSS }), shownMebi, []scaleBound{{5000, 80 << 20}, {100_000, 400 << 20}, {500_000, 2 << 30}}},
	{"of it no pages of the program", bytesOf(func(r *ScaleResult) int64 { return r.Own }), shownMebi, nil},
	{"most memory ever, with start, reload and answers", bytesOf(func(r *ScaleResult) int64 { return r.Peak }), shownMebi, nil},
	{"end of a timeout -> first byte at the BMC, median", secondsOf(func(r *ScaleResult) time.Duration { return times.Quantile(r.Decision, 0.5) }), func(v float64) string { return fmt.Sprintf("%.1f ms", 1000*v) }, []scaleBound{{0, 0.05}}},
	{"the same, the longest", secondsOf(func(r *ScaleResult) time.Duration { return times.Quantile(r.Decision, 1) }), func(v float64) string { return fmt.Sprintf("%.1f ms", 1000*v) }, nil},
	{"CPU of one core under the updates", func(r *ScaleResult) (float64, bool) { return r.CPU, true }, func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }, nil},
	{"updates/s in the window", func(r *ScaleResult) (float64, bool) { return r.Updates, true }, func(v float64) string { return fmt.Sprintf("%.0f", v) }, nil},
	{"reload of hosts.d, one entry changed, in the daemon", secondsOf(func(r *ScaleResult) time.Duration { return r.Order }), shownSeconds, []scaleBound{{100_000, 2}}},
	{"fenced --reload, which checks the files before", secondsOf(func(r *ScaleResult) time.Duration { return r.Reload }), shownSeconds, nil},
	{"fencectl status", secondsOf(func(r *ScaleResult) time.Duration { return r.Status }), shownSeconds, []scaleBound{{0, 1}}},
	{"CPU time of the daemon meanwhile", secondsOf(func(r *ScaleResult) time.Duration { return r.StatusCPU }), shownSeconds, nil},
	{"fencectl plan", secondsOf(func(r *ScaleResult) time.Duration { return r.Plan }), shownSeconds, []scaleBound{{0, 1}}},
	{"the page, first time", secondsOf(func(r *ScaleResult) time.Duration { return r.Page }), shownSeconds, []scaleBound{{0, 1}}},
	{"CPU time of the daemon meanwhile", secondsOf(func(r *ScaleResult) time.Duration { return r.PageCPU }), shownSeconds, nil},
	{"the page, again", secondsOf(func(r *ScaleResult) time.Duration { return r.Again }), shownSeconds, []scaleBound{{0, 1}}},
	{"CPU time of the daemon meanwhile", secondsOf(func(r *ScaleResult) time.Duration { return r.AgainCPU }), shownSeconds, nil},
	{"size of the page", func(r *ScaleResult) (float64, bool) { return float64(r.PageSize), true }, func(v float64) string { return fmt.Sprintf("%.1f MB", v/1e6) }, nil},
	{"BMCs read, of 100 in an interval of the health check", func(r *ScaleResult) (float64, bool) { return 100 * float64(r.Checked) / float64(r.Nodes), r.Sweep > 0 }, func(v float64) string { return fmt.Sprintf("%.1f", v) }, nil},
	{"reads in an interval", func(r *ScaleResult) (float64, bool) { return r.Polls, r.Sweep > 0 }, func(v float64) string { return fmt.Sprintf("%.0f", v) }, nil},
	{"resident with the health check", bytesOf(func(r *ScaleResult) int64 { return r.Sweeps.RSS }), shownMebi, nil},
	{"CPU of one core with the health check", func(r *ScaleResult) (float64, bool) { return r.Sweeps.CPU, r.Sweep > 0 }, func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }, nil},
}

// PrintScale writes one column for each size; a figure over its bound is marked with the bound.
func PrintScale(out io.Writer, results []*ScaleResult) error {
	fmt.Fprintf(out, "\n%s; a Machine and a BMC in hosts.d for each Node, %d updates/s asked for, the Kubernetes API in memory, the API and the BMCs in processes of their own\n\n",
		machine(), results[0].Rate)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	header, line := []string{"", "what"}, []string{"", "---"}
	for _, r := range results {
		header, line = append(header, fmt.Sprintf("%d Nodes", r.Nodes)), append(line, "---")
	}
	fmt.Fprintf(w, "%s\n%s\n", strings.TrimSpace(strings.Join(header, "\t| ")+"\t|"), strings.TrimSpace(strings.Join(line, "\t| ")+"\t|"))
	for _, row := range scaleRows {
		cells := []string{"", row.what}
		for _, r := range results {
			cells = append(cells, row.cell(r))
		}
		fmt.Fprintln(w, strings.TrimSpace(strings.Join(cells, "\t| ")+"\t|"))
	}
	return w.Flush()
}

func (row scaleRow) cell(r *ScaleResult) string {
	v, ok := row.figure(r)
	if !ok {
		return "-"
	}
	text := row.show(v)
	for _, b := range row.bounds {
		if (b.nodes == 0 || b.nodes == r.Nodes) && v > b.bound {
			text += " (bound " + row.show(b.bound) + ")"
		}
	}
	return text
}
