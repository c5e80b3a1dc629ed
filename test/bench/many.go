package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/rig"
)

// manyTimeout leaves time to make all of them fail before the first deadline. The test has a longer one.
var manyTimeout = 8 * time.Second

const (
	// sparePrefix names the Machines that the baseline deletes.
	sparePrefix = "spare-"
	// aftermath is for how long after the last deletion fenced is measured: runs end, slots are
	// freed.
	aftermath = 2 * time.Second
	// lookAgain is between two looks at the audit log of the API server.
	lookAgain = 2 * time.Second
)

// Many is what became of Machines that failed at the same moment.
type Many struct {
	// Fenced is from the deadline to the arrival of each Machine's DELETE at the API server.
	Fenced []time.Duration
	// Baseline is the same for a client that only deletes as many Machines, one after another,
	// as a controller with one worker does. It reads nothing and saves nothing.
	Baseline []time.Duration
	// UntilLast is the CPU time of fenced and of the control plane from the deadline until the last
	// DELETE.
	UntilLast cpuShares
	// CPU is what fenced used from the failure until the aftermath. Peak is the most memory.
	CPU  time.Duration
	Peak int64
}

// together makes many cloud Machines fail in the same second, and measures when fenced deletes
// them. Then it measures the baseline.
func (b *bench) together(ctx context.Context, p *process) error {
	b.tell("failing %d cloud Machines at the same moment", b.Together)
	before, err := p.cpuTime()
	if err != nil {
		return err
	}
	deadline, err := b.failTogether(ctx)
	if err != nil {
		return err
	}
	apiServer, etcd, err := b.cluster.PIDs()
	if err != nil {
		return err
	}
	used := startShares(ctx, p.cmd.Process.Pid, apiServer, etcd)
	defer used.stop()
	m := &b.result.Many
	if m.Fenced, err = b.deletions(ctx, deadline, namesOf(b.fleet.together)); err != nil {
		return err
	}
	if m.UntilLast, err = used.measure(deadline, deadline.Add(m.Fenced[len(m.Fenced)-1])); err != nil {
		return err
	}
	if !sleep(ctx, aftermath) {
		return ctx.Err()
	}
	after, err := p.cpuTime()
	if err != nil {
		return err
	}
	m.CPU = after - before
	if m.Peak, err = p.peak(); err != nil {
		return err
	}
	b.tell("deleting as many Machines with a client that does nothing else")
	m.Baseline, err = b.deleteSpares(ctx)
	return err
}

// failTogether makes the Nodes' Ready Unknown, all since the same second.
func (b *bench) failTogether(ctx context.Context) (deadline time.Time, err error) {
	since := time.Now().Truncate(time.Second)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, n := range b.fleet.together {
		g.Go(func() error {
			fail(n, since)
			if _, err := b.fleet.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("make Node %s fail: %w", n.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return time.Time{}, err
	}
	if late := time.Since(since); late > manyTimeout-warning {
		return time.Time{}, fmt.Errorf("make %d Nodes fail: that took until %s after their second began, too near to their deadline", len(b.fleet.together), late)
	}
	return since.Add(manyTimeout), nil
}

// deletions returns how long after a time each Machine's DELETE arrived, by the API server's own
// audit log. It looks there only after the time that they usually take, because that log is long.
func (b *bench) deletions(ctx context.Context, from time.Time, names []string) ([]time.Duration, error) {
	ctx, cancel := context.WithDeadline(ctx, from.Add(patience))
	defer cancel()
	found := map[string]time.Duration{}
	for len(found) < len(names) {
		if !sleep(ctx, max(time.Until(from), 0)+lookAgain) {
			return nil, fmt.Errorf("wait for the deletions of %d Machines: %d were deleted: %w", len(names), len(found), ctx.Err())
		}
		all, err := b.cluster.AllDeletions("machines")
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			if slices.Contains(names, d.Name) {
				found[d.Name] = d.Received.Sub(from)
			}
		}
	}
	return slices.Sorted(maps.Values(found)), nil
}

// deleteSpares deletes the spare Machines one after another.
func (b *bench) deleteSpares(ctx context.Context) ([]time.Duration, error) {
	cfg, err := b.cluster.RESTConfig("baseline", rig.AdminGroup)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	machines := client.Resource(rig.MachineResource).Namespace(rig.Namespace)
	began := time.Now()
	for _, name := range b.fleet.spares {
		if err := machines.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return nil, fmt.Errorf("delete Machine %s: %w", name, err)
		}
	}
	return b.deletions(ctx, began, b.fleet.spares)
}

func namesOf(nodes []*corev1.Node) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}

// togetherRows are the rows of the table: the bounds, and what was measured elsewhere in that
// setting with OpenShift's controller. Of the first one it is only known how long it takes alone.
var togetherRows = []struct {
	name  string
	share float64
	bound time.Duration
	peer  string
}{
	{"first", 0, 100 * time.Millisecond, "280 ms, alone"},
	{"median", 0.5, 250 * time.Millisecond, "290 ms"},
	{"last", 1, 800 * time.Millisecond, "800 ms"},
}

// The bounds of CPU time and memory while many fail at the same moment.
const (
	boundManyCPU  = 3300 * time.Millisecond
	boundManyPeak = 83 << 20
)

func (r *Result) manyRows(w io.Writer) {
	m := &r.Many
	fmt.Fprintf(w, "timeout over for %d at the same moment -> DELETE\tfenced\tonly deletes, one after another\tfenced / that\tbound\tfenced / bound\tOpenShift's controller, elsewhere\n", len(m.Fenced))
	for _, row := range togetherRows {
		d, base := quantile(m.Fenced, row.share), quantile(m.Baseline, row.share)
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%s\t%.2f\t%s\n", row.name, milli(d), milli(base), d.Seconds()/base.Seconds(),
			milli(row.bound), d.Seconds()/row.bound.Seconds(), row.peer)
	}
	for i, name := range sharers {
		fmt.Fprintf(w, "CPU time of %s, from the timeout until the last\t%s\n", name, milli(m.UntilLast[i]))
	}
	fmt.Fprintf(w, "CPU time of fenced, from the failure until %s after the last\t%s\t\t\t%s\t%.2f\n", aftermath, milli(m.CPU),
		milli(boundManyCPU), m.CPU.Seconds()/boundManyCPU.Seconds())
	fmt.Fprintf(w, "most memory of fenced until then\t%s\t\t\t%s\t%.2f\n", mebi(m.Peak), mebi(boundManyPeak), float64(m.Peak)/boundManyPeak)
}

const (
	rejudgeWord = "rejudge"
	syncedWord  = "synced"
)

// rejudger is what fenced is compared with: it watches the same objects and, as
// the MachineHealthCheck controllers do, lists all targets of a check and judges
// every one at every event of a Node. It is a charitable copy: objects are
// trimmed and converted once per event, and nothing is copied out of the cache.
// Events that come while it judges are answered by one more judgement.
type rejudger struct {
	checks []policy.Check
	due    chan struct{}

	mu       sync.Mutex
	nodes    map[string]*policy.Node
	machines map[string]policy.Machine
}

// rejudge runs one until ctx ends. It says when it has judged everything once,
// and answers each line of in with the number of its judgements so far.
func rejudge(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes a kubeconfig", rejudgeWord)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", args[0], err)
	}
	r := &rejudger{due: make(chan struct{}, 1), nodes: map[string]*policy.Node{}, machines: map[string]policy.Machine{}}
	if err := r.watch(ctx, cfg); err != nil {
		return err
	}
	r.judge()
	fmt.Fprintln(out, syncedWord)
	var judged counter
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			fmt.Fprintln(out, judged.Load())
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.due:
		}
		r.judge()
		judged.Add(1)
	}
}

// watch reads the checks, and fills the caches until ctx ends.
func (r *rejudger) watch(ctx context.Context, cfg *rest.Config) error {
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	proto := rest.CopyConfig(cfg)
	proto.ContentType, proto.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	typed, err := kubernetes.NewForConfig(proto)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	list, err := dyn.Resource(rig.CheckResource).Namespace(rig.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the checks: %w", err)
	}
	for _, item := range list.Items {
		r.checks = append(r.checks, manifest.MachineHealthCheck(item.Object))
	}
	nodes := informers.NewSharedInformerFactory(typed, 0).Core().V1().Nodes().Informer()
	machines := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, rig.Namespace, nil).ForResource(rig.MachineResource).Informer()
	return r.follow(ctx, nodes, machines)
}

// follow keeps converted copies of what the informers hold.
func (r *rejudger) follow(ctx context.Context, nodes, machines cache.SharedIndexInformer) error {
	nodeEvents, err := nodes.AddEventHandler(handler(r.setNode, func(name string) { delete(r.nodes, name) }, r))
	if err != nil {
		return fmt.Errorf("watch Nodes: %w", err)
	}
	machineEvents, err := machines.AddEventHandler(handler(r.setMachine, func(name string) { delete(r.machines, name) }, r))
	if err != nil {
		return fmt.Errorf("watch Machines: %w", err)
	}
	if err := nodes.SetTransform(trimNode); err != nil {
		return fmt.Errorf("watch Nodes: %w", err)
	}
	go nodes.RunWithContext(ctx)
	go machines.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), nodeEvents.HasSynced, machineEvents.HasSynced) {
		return fmt.Errorf("wait for the caches: %w", ctx.Err())
	}
	return nil
}

// handler calls set or remove with the lock held, and asks for a judgement.
func handler[T metav1.Object](set func(T), remove func(name string), r *rejudger) cache.ResourceEventHandler {
	change := func(f func()) {
		r.mu.Lock()
		f()
		r.mu.Unlock()
		select {
		case r.due <- struct{}{}:
		default: // it is asked for already
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { change(func() { set(obj.(T)) }) },
		UpdateFunc: func(_, obj any) { change(func() { set(obj.(T)) }) },
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				_, name, _ := cache.SplitMetaNamespaceKey(key) // the key func made it
				change(func() { remove(name) })
			}
		},
	}
}

// trimNode drops what a fair rival would not keep either.
func trimNode(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		n.ManagedFields, n.Status.Images = nil, nil
	}
	return obj, nil
}

func (r *rejudger) setNode(n *corev1.Node) {
	out := &policy.Node{Name: n.Name, UID: string(n.UID), Labels: n.Labels, Annotations: n.Annotations}
	for _, c := range n.Status.Conditions {
		out.Conditions = append(out.Conditions, policy.Condition{
			Type: string(c.Type), Status: string(c.Status), LastTransition: c.LastTransitionTime.Time,
		})
	}
	r.nodes[n.Name] = out
}

func (r *rejudger) setMachine(u *unstructured.Unstructured) {
	if m, err := manifest.Machine(u.Object); err == nil { // ours all decode
		r.machines[m.Name] = m
	}
}

// judge lists all targets and judges every one.
func (r *rejudger) judge() {
	r.mu.Lock()
	s := policy.Snapshot{Checks: r.checks, Nodes: maps.Clone(r.nodes), Machines: slices.Collect(maps.Values(r.machines))}
	r.mu.Unlock()
	policy.Decide(s, time.Now())
}

// peer is a running rejudger: this very program, as a process of its own so that
// the kernel accounts for it alone.
type peer struct {
	*process
	ask    io.WriteCloser
	answer *bufio.Scanner
}

// measurePeer measures the comparison as fenced was measured.
func (b *bench) measurePeer(ctx context.Context) error {
	b.tell("starting the controller that judges everything again at every event")
	p, err := b.startPeer(ctx)
	if err != nil {
		return err
	}
	defer p.stop()
	before, err := p.judgements()
	if err != nil {
		return err
	}
	began := time.Now()
	if b.result.Peer, err = b.usage(ctx, p.process); err != nil {
		return err
	}
	after, err := p.judgements()
	b.result.Judgements = perSecond(after-before, time.Since(began))
	return err
}

func (b *bench) startPeer(ctx context.Context) (*peer, error) {
	kubeconfig, err := b.cluster.Kubeconfig(rig.FencedUser)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	p := &peer{process: newProcess(b.dir, rejudgeWord, self, rejudgeWord, kubeconfig)}
	if p.ask, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	p.answer = bufio.NewScanner(out)
	if err := p.start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(startTime, p.kill) // ends a read that would wait for ever
	defer late.Stop()
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	if line, err := p.read(); line != syncedWord {
		p.stop()
		return nil, fmt.Errorf("start the peer: %q: %w\n%s", line, err, p.logTail())
	}
	return p, nil
}

// judgements is how often it judged everything since its start.
func (p *peer) judgements() (int64, error) {
	if _, err := fmt.Fprintln(p.ask); err != nil {
		return 0, fmt.Errorf("ask the peer: %w", err)
	}
	line, err := p.read()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("ask the peer: %w", err)
	}
	return n, nil
}

func (p *peer) read() (string, error) {
	if !p.answer.Scan() {
		return "", fmt.Errorf("the peer ended: %w", io.ErrUnexpectedEOF)
	}
	return strings.TrimSpace(p.answer.Text()), nil
}
