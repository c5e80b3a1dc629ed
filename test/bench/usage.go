package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fenced/fenced/test/rig"
)

// Usage is what a process cost while the load ran.
type Usage struct {
	CPU     float64 // share of one core
	RSS     int64   // bytes, at the end of the window
	Own     int64   // bytes of it that are no pages of files, as the program's
	Peak    int64   // bytes, the most it ever had
	Updates float64 // of Nodes per second, during the window
}

// usage measures for as long as window.
func (p *process) usage(ctx context.Context, window time.Duration, updates *counter) (Usage, error) {
	began, posted := time.Now(), updates.Load()
	cpu, err := p.used(func() error {
		rig.Sleep(ctx, window)
		return ctx.Err()
	})
	if err != nil {
		return Usage{}, err
	}
	took := time.Since(began)
	u := Usage{CPU: cpu.Seconds() / took.Seconds(), Updates: perSecond(updates.Load()-posted, took)}
	if u.RSS, err = p.memory("VmRSS"); err != nil {
		return u, err
	}
	if u.Own, err = p.memory("RssAnon"); err != nil {
		return u, err
	}
	peak, err := p.peak()
	u.Peak = max(u.RSS, peak)
	return u, err
}

// peak is the most memory it ever had. The kernel notes that late: what it has
// now may already be more.
func (p *process) peak() (int64, error) {
	noted, err := p.memory("VmHWM")
	if err != nil {
		return 0, err
	}
	now, err := p.memory("VmRSS")
	return max(noted, now), err
}

// userHz is the unit of CPU times in /proc, the same on every Linux machine.
const userHz = 100

// cpuTime is the time in user and kernel mode of all threads.
func (p *process) cpuTime() (time.Duration, error) { return cpuTimeOf(p.cmd.Process.Pid, p.name) }

// used is the CPU time that the process uses while something is done.
func (p *process) used(do func() error) (time.Duration, error) {
	before, err := p.cpuTime()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := p.cpuTime()
	return after - before, err
}

// cpuTimeOf is the same of any process.
func cpuTimeOf(pid int, name string) (time.Duration, error) {
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of %s: %w", name, err)
	}
	d, err := parseCPU(string(stat))
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of %s: %w", name, err)
	}
	return d, nil
}

// parseCPU adds utime and stime, fields 14 and 15 of proc_pid_stat(5). The
// second is the program's name, which may hold anything.
func parseCPU(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%q is no line of /proc/PID/stat", stat)
	}
	var ticks uint64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHz, nil
}

// memory is a line of /proc/PID/status in bytes.
func (p *process) memory(key string) (int64, error) {
	n, err := rig.Memory(p.cmd.Process.Pid, key)
	if err != nil {
		return 0, fmt.Errorf("read the memory of %s: %w", p.name, err)
	}
	return n, nil
}

func procFile(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// shareEvery is between two readings of CPU times. Their unit is not finer.
const shareEvery = time.Second / userHz

// sharers are the programs whose CPU time is compared while many Machines fail.
var sharers = [...]string{"the program", "the API server", "etcd"}

// cpuShares are the CPU times of the sharers. On a wall clock alone, nobody can tell what other
// programs of the machine took.
type cpuShares [len(sharers)]time.Duration

// shares reads CPU times again and again, so that those of any time between can be told.
type shares struct {
	pids  [len(sharers)]int
	stop  context.CancelFunc
	g     sync.WaitGroup
	at    []time.Time
	times []cpuShares
	err   error
}

// startShares begins to read, until measure is called.
func startShares(ctx context.Context, program, apiServer, etcd int) *shares {
	s := &shares{pids: [...]int{program, apiServer, etcd}}
	ctx, s.stop = context.WithCancel(ctx)
	s.g.Go(func() {
		for s.read() && rig.Sleep(ctx, shareEvery) {
		}
	})
	return s
}

// read returns false after an error.
func (s *shares) read() bool {
	var all cpuShares
	for i, pid := range s.pids {
		if all[i], s.err = cpuTimeOf(pid, sharers[i]); s.err != nil {
			return false
		}
	}
	s.at, s.times = append(s.at, time.Now()), append(s.times, all)
	return true
}

// measure ends the reading, and returns the CPU times between two instants.
func (s *shares) measure(from, to time.Time) (used cpuShares, err error) {
	s.stop()
	if s.g.Wait(); s.err != nil {
		return used, s.err
	}
	before, after := s.last(from), s.last(to)
	for i := range used {
		used[i] = after[i] - before[i]
	}
	return used, nil
}

// last is the last reading not after an instant, or else the first.
func (s *shares) last(t time.Time) cpuShares {
	found := s.times[0]
	for i, at := range s.at {
		if !at.After(t) {
			found = s.times[i]
		}
	}
	return found
}

// process is a program that is measured, alone, by the kernel's account.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it ended
}

// startProcess starts a program that says all it has to say in a log.
func startProcess(dir, name, program string, args ...string) (*process, error) {
	p := newProcess(dir, name, program, args...)
	return p, p.start()
}

// newProcess prepares one; its standard output goes to the log, too, unless the
// caller wants it.
func newProcess(dir, name, program string, args ...string) *process {
	return &process{name: name, cmd: exec.Command(program, args...), log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
}

func (p *process) start() error { return rig.RunLogged(p.cmd, p.name, p.log, os.O_TRUNC, p.done) }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the program as systemd does, and kills one that does not end.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error says only that it is gone already
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		p.kill()
		<-p.done
	}
}

func (p *process) kill() { _ = p.cmd.Process.Kill() } // an error says only that it is gone already

// logTail is the end of the log, to go behind an error.
func (p *process) logTail() string {
	text, err := rig.ReadEnd(p.log, 4<<10)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text))
}

// kubelets is how many goroutines post for all Nodes.
const kubelets = 8

// load posts Node status updates at a steady rate, one Node after the other.
type load struct {
	nodes int
	rate  int // per second
	// update updates one of the Nodes: a heartbeat, or it turns a condition that no check lists.
	update func(ctx context.Context, node int, turned bool) error
	done   counter
}

// loadOn is the load on Nodes that nobody else writes, so each update starts from the answer to the last.
func loadOn(client kubernetes.Interface, nodes []*corev1.Node, rate int) *load {
	return &load{nodes: len(nodes), rate: rate, update: func(ctx context.Context, i int, turned bool) error {
		change := heartbeat
		if turned {
			change = turn
		}
		change(nodes[i], time.Now())
		updated, err := client.CoreV1().Nodes().UpdateStatus(ctx, nodes[i], metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("update the status of a Node: %w", err)
		}
		nodes[i] = updated
		return nil
	}}
}

// run posts until ctx ends. A cluster that answers too slowly lowers the rate,
// which is why the rate is measured.
func (l *load) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for k := range min(kubelets, l.nodes) {
		g.Go(func() error { return l.post(ctx, k) })
	}
	return g.Wait()
}

// post updates every kubelets-th Node, beginning with the first-th. Half of the updates turn a condition.
func (l *load) post(ctx context.Context, first int) error {
	interval := kubelets * time.Second / time.Duration(l.rate)
	if !rig.Sleep(ctx, interval*time.Duration(first)/kubelets) { // spreads the kubelets over the interval
		return nil
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i, round := first, 0; ; i += kubelets {
		if i >= l.nodes {
			i, round = first, round+1
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := l.update(ctx, i, (i/kubelets+round)%2 == 1)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		l.done.Add(1)
	}
}
