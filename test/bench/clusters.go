package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/rig"
)

// ClustersOptions size a measurement of many clusters.
type ClustersOptions struct {
	Clusters, Nodes int // Nodes of each
	Pins            int // records of hosts in the store
	Storm           int // updates per second in the cluster that has a storm of them
	BadChecks       int
	Timeout         time.Duration // of the checks
	Window          time.Duration // how long the cost is measured
	Parts           []string      // what is measured, of parts
	Fenced          string        // a built fenced to measure; empty: that of this source
	Progress        io.Writer
}

// parts are a hand-over in each of three ways, and the decisions beside a cluster in trouble.
var parts = []string{"kill", "freeze", "partition", "decisions"}

// instances is how many daemons share the clusters.
const instances = 3

// conditions are what is wrong with the first cluster while the decisions in all others are measured. A baseline is measured before and
// after: their difference is the noise of the machine.
var conditions = [...]string{"nothing, before", "its API server hangs", "a storm of updates", "checks that cannot be obeyed", "nothing, after"}

// ClustersResult is what was measured.
type ClustersResult struct {
	ClustersOptions
	Owned, Acting time.Duration  // from the start of the daemons until all clusters have an owner, and until all owners may act
	Balance       map[string]int // clusters by instance
	Idle, Busy    Cost           // while nothing happens, and while a run is stored once a second
	HandOvers     []HandOver
	Decisions     [][]time.Duration // by condition
}

// Cost is what the instances need.
type Cost struct {
	Usage        []Usage // by instance
	EtcdRequests float64 // per second, at all members
	APIRequests  float64 // per second, at the API server of one cluster
}

// HandOver is how long the clusters of one instance had no owner.
type HandOver struct {
	What    string
	Lost    string          // the instance
	Owned   []time.Duration // from the fault until another instance owns the cluster
	Acting  time.Duration   // until the last of them may be acted on
	Back    []time.Duration // how long each was without an owner when it was handed back in order
	Balance map[string]int  // after it was taken over
}

// clustersTime bounds a measurement.
const clustersTime = 40 * time.Minute

func measureClusters(ctx context.Context, args []string) error {
	o := ClustersOptions{Progress: os.Stderr}
	f := flag.NewFlagSet("bench clusters", flag.ContinueOnError)
	f.IntVar(&o.Clusters, "clusters", 200, "clusters")
	f.IntVar(&o.Nodes, "nodes", 500, "Nodes of each")
	f.IntVar(&o.Pins, "pins", 100_000, "hosts of which the store has a pin")
	f.IntVar(&o.Storm, "storm", 500, "Node status updates per second in the cluster that has a storm of them")
	f.IntVar(&o.BadChecks, "checks", 5000, "checks that cannot be obeyed")
	f.DurationVar(&o.Timeout, "timeout", 6*time.Second, "of the checks")
	f.DurationVar(&o.Window, "window", 20*time.Second, "how long CPU and requests are measured")
	f.StringVar(&o.Fenced, "fenced", "", "measure this program, to compare two; empty: that of this source")
	list := f.String("parts", strings.Join(parts, ","), "what is measured; none: only what idle clusters cost")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if *list != "none" {
		o.Parts = strings.Split(*list, ",")
	}
	r, err := MeasureClusters(ctx, o)
	if err != nil {
		return err
	}
	return r.Print(os.Stdout)
}

// MeasureClusters sets up the clusters, measures, and takes everything down again. It is an error if two instances had one claim, or
// if fenced switched anything.
func MeasureClusters(ctx context.Context, o ClustersOptions) (r *ClustersResult, err error) {
	if o.Clusters < 2 || o.Nodes <= len(conditions) || o.Storm < 1 || o.Window < time.Second {
		return nil, fmt.Errorf("2 clusters, %d Nodes of each, one update a second and a window of 1s are needed", len(conditions)+1)
	}
	for _, part := range o.Parts {
		if !slices.Contains(parts, part) {
			return nil, fmt.Errorf("there is no part %q; there are %s", part, strings.Join(parts, ", "))
		}
	}
	// This process serves all APIs. Memory costs less than garbage collection here, as for the programs of package rig.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	s := &site{ClustersOptions: o, seen: newClaims()}
	if s.dir, err = os.MkdirTemp("", "fenced-clusters-"); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() {
		s.stop(err != nil)
		keepLogs(s.dir, &err)
	}()
	ctx, cancel := context.WithTimeout(ctx, clustersTime)
	defer cancel()
	if err := s.build(ctx); err != nil {
		return nil, err
	}
	r = &ClustersResult{ClustersOptions: o}
	for _, step := range []func(context.Context, *ClustersResult) error{s.begin, s.cost, s.handOvers, s.decisions} {
		if err := step(ctx, r); err != nil {
			return nil, errors.Join(err, s.etcd.Died())
		}
	}
	return r, errors.Join(s.unharmed(ctx), s.etcd.Died())
}

// begin starts the daemons, and waits until each cluster is acted on, by the instance that is to own it.
func (s *site) begin(ctx context.Context, r *ClustersResult) error {
	s.tell("starting %d daemons", instances)
	began := time.Now()
	if err := s.startInstances(instances); err != nil {
		return err
	}
	all := func(c claims) bool { return len(c.owners) == s.Clusters }
	c, err := s.await(ctx, "all clusters have an owner", all)
	if err != nil {
		return err
	}
	r.Owned = c.last(began).Sub(began)
	if r.Acting, err = s.awaitActing(ctx, began); err != nil {
		return err
	}
	s.tell("waiting until the clusters are where they stay")
	if c, err = s.awaitCalm(ctx); err != nil {
		return err
	}
	r.Balance = c.balance()
	s.tell("owned after %s, acted on after %s, balance %v", seconds(r.Owned), seconds(r.Acting), r.Balance)
	return nil
}

// cost measures what the daemons need while nothing happens, and while another instance's run is stored once a second.
func (s *site) cost(ctx context.Context, r *ClustersResult) (err error) {
	s.tell("measuring the daemons and the etcd for %s", s.Window)
	if r.Idle, err = s.costOnce(ctx); err != nil {
		return err
	}
	store, err := s.openStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	s.tell("measuring them for %s while a run is stored once a second", s.Window)
	storing, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		run := remediate.Run{ID: "bench", Target: remediate.Target{Cluster: "elsewhere", Node: "node"}, Step: remediate.Done, Started: time.Now().UTC(), Ended: time.Now().UTC()}
		var err error
		for err == nil && rig.Sleep(storing, time.Second) {
			run.Note = time.Now().String()
			run, err = state.SaveRun(ctx, store, run)
		}
		done <- err
	}()
	r.Busy, err = s.costOnce(ctx)
	stop()
	if err := errors.Join(err, <-done); err != nil {
		return err
	}
	s.tell("requests/s at the etcd: %.0f, and %.0f while a run is stored once a second", r.Idle.EtcdRequests, r.Busy.EtcdRequests)
	return nil
}

func (s *site) costOnce(ctx context.Context) (c Cost, err error) {
	before, err := s.etcdRequests(ctx)
	if err != nil {
		return c, err
	}
	began, asked := time.Now(), s.asked()
	c.Usage = make([]Usage, len(s.instances))
	g, gctx := errgroup.WithContext(ctx)
	for i, p := range s.instances {
		g.Go(func() (err error) {
			var none counter
			c.Usage[i], err = p.usage(gctx, s.Window, &none)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return c, err
	}
	after, err := s.etcdRequests(ctx)
	took := time.Since(began)
	c.EtcdRequests, c.APIRequests = perSecond(after-before, took), perSecond(s.asked()-asked, took)/float64(s.Clusters)
	return c, err
}

// asked is how many requests all API servers got from fenced.
func (s *site) asked() (n int64) {
	for _, m := range s.members {
		n += m.asked.Load()
	}
	return n
}

var handled = regexp.MustCompile(`(?m)^grpc_server_handled_total\{.*\} ([0-9.e+]+)$`)

// etcdRequests is how many requests the members of the etcd have answered.
func (s *site) etcdRequests(ctx context.Context) (n int64, err error) {
	for _, e := range s.etcd.Endpoints() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, e+"/metrics", nil)
		if err != nil {
			return 0, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, fmt.Errorf("read the metrics of an etcd: %w", err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return 0, fmt.Errorf("read the metrics of an etcd: %w", err)
		}
		for _, found := range handled.FindAllSubmatch(text, -1) {
			f, err := strconv.ParseFloat(string(found[1]), 64)
			if err != nil {
				return 0, fmt.Errorf("read the metrics of an etcd: %w", err)
			}
			n += int64(f)
		}
	}
	return n, nil
}

// decisions measures the decisions in all clusters but the first, while something is wrong with that one.
func (s *site) decisions(ctx context.Context, r *ClustersResult) error {
	if !slices.Contains(s.Parts, "decisions") {
		return nil
	}
	faulty := s.members[0]
	for i, condition := range conditions {
		end := func() error { return nil }
		switch i {
		case 1:
			again := faulty.hang()
			end = func() error { again(); return nil }
		case 2:
			l := loadOn(faulty.client, faulty.others, s.Storm)
			storming, stop := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() { done <- l.run(storming) }()
			end = func() error { stop(); return <-done }
		case 3:
			if err := s.breakChecks(ctx); err != nil {
				return err
			}
		}
		if !rig.Sleep(ctx, settleTime) {
			return ctx.Err()
		}
		s.tell("decisions: %s", condition)
		took, err := s.decide(ctx, i)
		if err := errors.Join(err, end()); err != nil {
			return fmt.Errorf("decisions with %s: %w", condition, err)
		}
		s.tell("median %s, p99 %s", milli(times.Quantile(took, 0.5)), milli(times.Quantile(took, 0.99)))
		r.Decisions = append(r.Decisions, took)
	}
	return nil
}

// settleTime is between the begin of a fault and the first decision.
const settleTime = 5 * time.Second

// breakChecks creates checks whose selectors do not parse.
func (s *site) breakChecks(ctx context.Context) error {
	client := s.members[0].plane.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range s.BadChecks {
		g.Go(func() error {
			_, err := client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineHealthCheck", "metadata": map[string]any{"name": fmt.Sprintf("bad-%05d", i)},
				"spec": map[string]any{
					"selector":            map[string]any{"matchExpressions": []any{map[string]any{"key": "rack", "operator": "Near", "values": []any{"1"}}}},
					"unhealthyConditions": []any{map[string]any{"type": "Ready", "status": "Unknown", "timeout": "300s"}},
				},
			}}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create a check that cannot be obeyed: %w", err)
			}
			return nil
		})
	}
	return g.Wait()
}

// decide lets one Node of each cluster fail, those of ten clusters in a second, and returns how long after their deadlines their BMCs
// are asked.
func (s *site) decide(ctx context.Context, condition int) ([]time.Duration, error) {
	deadlines := make([]time.Time, len(s.members))
	for first := 1; first < len(s.members); first += phases {
		second := time.Now().Truncate(time.Second).Add(time.Second)
		if !rig.Sleep(ctx, time.Until(second)) {
			return nil, ctx.Err()
		}
		for i := first; i < min(first+phases, len(s.members)); i++ {
			m := s.members[i]
			fail(m.nodes[condition], second)
			if err := m.update(ctx, condition); err != nil {
				return nil, err
			}
			if deadlines[i] = second.Add(s.timeout(i)); time.Until(deadlines[i]) < warning {
				return nil, fmt.Errorf("make a Node of %s fail: that took until %s before its deadline", m.name, time.Until(deadlines[i]))
			}
		}
	}
	var took []time.Duration
	for i, m := range s.members[1:] {
		waiting, cancel := context.WithDeadline(ctx, times.Later(deadlines[i+1], time.Now()).Add(patience))
		select {
		case at := <-m.targets[condition].asked:
			took = append(took, at.Sub(deadlines[i+1]))
		case <-waiting.Done():
			cancel()
			return nil, fmt.Errorf("wait until the BMC of %s in %s is asked: %w", m.nodes[condition].Name, m.name, waiting.Err())
		}
		cancel()
		ready(m.nodes[condition], time.Now())
		if err := m.update(ctx, condition); err != nil {
			return nil, err
		}
	}
	return took, nil
}

func (m *member) update(ctx context.Context, node int) (err error) {
	m.nodes[node], err = m.client.CoreV1().Nodes().UpdateStatus(ctx, m.nodes[node], metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status of a Node: %w", err)
	}
	return nil
}

// unharmed is an error if fenced switched a host, or a Node is gone.
func (s *site) unharmed(ctx context.Context) error {
	for _, m := range s.members {
		for i, t := range m.targets {
			if changes := t.bmc.Changes(); len(changes) > 0 {
				return fmt.Errorf("the host of %s in %s was switched: %v", m.nodes[i].Name, m.name, changes)
			}
		}
		list, err := m.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the Nodes: %w", err)
		}
		if len(list.Items) != s.Nodes {
			return fmt.Errorf("%s has %d Nodes of %d", m.name, len(list.Items), s.Nodes)
		}
	}
	return nil
}

func (s *site) tell(format string, args ...any) {
	fmt.Fprintf(s.Progress, "bench: "+format+"\n", args...)
}

// Print writes the tables.
func (r *ClustersResult) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%d clusters of %d Nodes, %d daemons, an etcd of three members with %d pins\n%s\n\n", r.Clusters, r.Nodes, instances, r.Pins, machine())
	fmt.Fprintf(w, "start -> all clusters owned\t%s\n", seconds(r.Owned))
	fmt.Fprintf(w, "start -> all clusters acted on\t%s\n", seconds(r.Acting))
	fmt.Fprintf(w, "requests/s at the etcd while nothing happens\t%.0f\n", r.Idle.EtcdRequests)
	fmt.Fprintf(w, "the same while a run is stored once a second\t%.0f\n", r.Busy.EtcdRequests)
	fmt.Fprintf(w, "requests/s of all daemons at the API server of a cluster in which nothing happens\t%.1f\n\n", r.Idle.APIRequests)
	fmt.Fprintln(w, "instance\tclusters\tCPU, of one core\tthe same while a run is stored once a second\tresident\tmost ever")
	for i, u := range r.Idle.Usage {
		name := instanceName(i)
		fmt.Fprintf(w, "%s\t%d\t%.1f %%\t%.1f %%\t%s\t%s\n", name, r.Balance[name], 100*u.CPU, 100*r.Busy.Usage[i].CPU, mebi(u.RSS), mebi(u.Peak))
	}
	if len(r.HandOvers) > 0 {
		fmt.Fprintln(w, "\nhand-over after\tclusters\tfirst\tmedian\tp99\tlast\tall acted on\tthen owned\thanded back, without an owner: median\tlast")
	}
	for _, h := range r.HandOvers {
		var shares []string
		for _, name := range slices.Sorted(maps.Keys(h.Balance)) {
			shares = append(shares, strconv.Itoa(h.Balance[name]))
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.What, len(h.Owned), seconds(times.Quantile(h.Owned, 0)), seconds(times.Quantile(h.Owned, 0.5)),
			seconds(times.Quantile(h.Owned, 0.99)), seconds(times.Quantile(h.Owned, 1)), seconds(h.Acting), strings.Join(shares, " + "),
			seconds(times.Quantile(h.Back, 0.5)), seconds(times.Quantile(h.Back, 1)))
	}
	if len(r.Decisions) > 0 {
		fmt.Fprintln(w, "\none cluster has\tdecisions in the others\tmedian\tp99\tlast\tp99 / p99 without")
	}
	for i, took := range r.Decisions {
		without := max(times.Quantile(r.Decisions[0], 0.99), times.Quantile(r.Decisions[len(conditions)-1], 0.99))
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%.2f\n", conditions[i], len(took), milli(times.Quantile(took, 0.5)), milli(times.Quantile(took, 0.99)), milli(times.Quantile(took, 1)),
			times.Quantile(took, 0.99).Seconds()/without.Seconds())
	}
	return w.Flush()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
