// Command demo fences a hung node, on this machine alone: three workers with simulated hosts behind IPMI and Redfish, and
// fenced and fencectl as they are shipped. A stand-in serves the Kubernetes API; with CONTROLPLANE=real it is a control
// plane of the programs that the rig finds or builds. With KEEP=1 everything is left running until Ctrl-C. It needs no root and no
// package, and Go only if it has to build that control plane. It ends non-zero when the node does not come back whole.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/apiserver"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

const (
	hungWorker = "worker-1"
	unhealthy  = 2 * time.Second // the check's timeout
	playTime   = 5 * time.Minute // from the curtain to the end, on a machine that is busy
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	c, err := chosen()
	if err != nil {
		return err
	}
	fmt.Println(c.intro)
	programs, err := shipped()
	if err != nil {
		return err
	}
	s, err := prepare(ctx, programs, c)
	if err != nil {
		return err
	}
	defer s.Stop()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nthe logs are kept in %s; the end of fenced's:\n%s", err, s.KeepLogs(), s.LogTail(50))
		}
	}()
	limited, cancel := context.WithTimeout(ctx, playTime)
	defer cancel()
	if _, err := s.StartDaemon(limited); err != nil {
		return err
	}
	if err := play(limited, s, s.Worker(hungWorker), c); err != nil {
		return err
	}
	if file := os.Getenv("SVG"); file != "" {
		if err := draw(limited, s, file); err != nil {
			return err
		}
	}
	if os.Getenv("KEEP") == "" {
		return nil
	}
	return keep(ctx, s, programs.Fencectl)
}

// shipped are the programs as they are shipped. They lie beside this one.
func shipped() (scene.Programs, error) {
	demo, err := os.Executable()
	if err != nil {
		return scene.Programs{}, fmt.Errorf("find fenced and fencectl: %w", err)
	}
	p := scene.Programs{Fenced: filepath.Join(filepath.Dir(demo), "fenced"), Fencectl: filepath.Join(filepath.Dir(demo), "fencectl")}
	for _, path := range []string{p.Fenced, p.Fencectl} {
		if _, err := os.Stat(path); err != nil {
			return p, fmt.Errorf("find fenced and fencectl beside the demo: %w; make demo puts them there", err)
		}
	}
	return p, nil
}

// choice is the control plane that the demo runs on.
type choice struct {
	intro, starts, loses, counts string
	standIn                      func(audit io.Writer) (rig.API, error)
}

func chosen() (choice, error) {
	switch name := os.Getenv("CONTROLPLANE"); name {
	case "":
		return choice{
			intro: "fenced demo: one host of three hangs.\n" +
				"Real: fenced and fencectl as they are shipped, and the IPMI (RMCP+ over UDP) and Redfish (TLS) that they speak.\n" +
				"Stand-ins: the Kubernetes API, in memory; what marks a silent Node Unknown; the hosts, their BMCs and their kubelets.\n" +
				"With CONTROLPLANE=real it runs on a real etcd, kube-apiserver and kube-controller-manager.",
			starts:  "starting the Kubernetes API in memory and three workers ...",
			loses:   "no heartbeat: a stand-in for kube-controller-manager sets Ready=Unknown",
			counts:  "Node deleted, by the audit log of the Kubernetes API",
			standIn: func(audit io.Writer) (rig.API, error) { return apiserver.Start(apiserver.Options{Audit: audit}) },
		}, nil
	case "real":
		return choice{
			intro: "fenced demo: one host of three hangs, on a real Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager\n" +
				"of KUBEBUILDER_ASSETS, if that names a directory with them; else those beside the demo, or that this user has built before; else built from source now.",
			starts: "starting etcd, kube-apiserver, kube-controller-manager and three workers ...",
			loses:  "kube-controller-manager sets Ready=Unknown",
			counts: "Node deleted, by the API server's audit log",
		}, nil
	default:
		return choice{}, fmt.Errorf("CONTROLPLANE is %q; leave it out, or use CONTROLPLANE=real", name)
	}
}

// draw writes the picture of the run into a file.
func draw(ctx context.Context, s *scene.Scene, file string) error {
	r, err := s.Fencectl(ctx, "timeline", hungWorker, "-o", "svg")
	if err != nil {
		return err
	}
	if r.Exit != 0 {
		return fmt.Errorf("draw the timeline: %s", r.Stderr)
	}
	if err := os.WriteFile(file, []byte(r.Stdout), 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// keep leaves the scene running until Ctrl-C.
func keep(ctx context.Context, s *scene.Scene, fencectl string) error {
	fencectl = fencectl + " --socket " + s.Socket()
	fmt.Printf("\nAll of it is still running. In another terminal, try\n")
	for _, verb := range []string{"status -o wide", "explain " + hungWorker, "timeline " + hungWorker, "bmc list", "ui", "fence worker-2 --reason demo --dry-run"} {
		fmt.Printf("    %s %s\n", fencectl, verb)
	}
	fmt.Println("Ctrl-C ends it.")
	<-ctx.Done()
	return nil
}

func prepare(ctx context.Context, programs scene.Programs, c choice) (*scene.Scene, error) {
	fmt.Println(c.starts)
	return scene.New(ctx, scene.Options{
		Programs: programs,
		Checks:   []rig.Check{scene.Metal(unhealthy.String())},
		Workers: []scene.Spec{
			{Name: "worker-1", Protocol: scene.IPMI, Metal3: true},
			{Name: "worker-2", Protocol: scene.IPMI},
			{Name: "worker-3", Protocol: scene.Redfish},
		},
		// Kubelets renew their Leases every second here, and as usual after a quarter of what a Lease lasts.
		LeaseDuration: 4 * time.Second, StandIn: c.standIn,
		// The variable is that of setup-envtest, the tool of the Kubernetes project for tests of controllers. make bundle puts them beside fenced.
		Assets: []string{os.Getenv("KUBEBUILDER_ASSETS"), filepath.Dir(programs.Fenced)}, Progress: os.Stdout,
	})
}

// play hangs the host, tells what happens, and checks the end.
func play(ctx context.Context, s *scene.Scene, w *scene.Worker, c choice) error {
	told := teller{start: time.Now(), client: api.New(s.Socket()), node: w.Name}
	w.Kubelet.Hang()
	told.say("%s hangs: its power is on, its kubelet is silent. From here on nobody touches anything.", w.Name)
	lost, err := s.Cluster.WaitNode(ctx, w.Name, func(n *corev1.Node) bool {
		return rig.ReadyStatus(n) == corev1.ConditionUnknown
	})
	if err != nil {
		return err
	}
	told.say("%s; the MachineHealthCheck allows that for %s", c.loses, unhealthy)
	if err := told.follow(ctx); err != nil {
		return err
	}
	runs, err := s.Timeline(ctx, w.Name)
	if err != nil {
		return err
	}
	if len(runs) != 1 || runs[0].Result != wire.ResultDone {
		return fmt.Errorf("the runs of %s did not end in one that is done: %+v", w.Name, runs)
	}
	if err := verify(ctx, s, w); err != nil {
		return err
	}
	return figures(s, w, runs[0], lost, c)
}

// verify looks at the cluster itself: fenced's own word is no proof.
func verify(ctx context.Context, s *scene.Scene, w *scene.Worker) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n, err := s.Cluster.WaitNode(ctx, w.Name, scene.IsReady)
	if err != nil {
		return err
	}
	if n.UID == w.Registered.UID {
		return errors.New("the Node is the old one")
	}
	if lacks := w.Undressed(n); len(lacks) > 0 {
		return fmt.Errorf("the new Node lacks %v", lacks)
	}
	deleted, err := s.Cluster.NodeDeletions(w.Name)
	if err != nil {
		return err
	}
	if len(deleted) != 1 {
		return fmt.Errorf("the audit log has %d deletions of Node %s, not one", len(deleted), w.Name)
	}
	return s.Died()
}

// meaning is what each step is for, in the words of somebody who watches.
var meaning = map[string]string{
	"PowerOff":    "1/6 PowerOff: make sure of the BMC's identity, send Off, read Off twice, see no heartbeat for 15 s",
	"DeleteNode":  "2/6 DeleteNode: the host is proven off; save the Node, delete it: its pods may start elsewhere now",
	"PowerOn":     "3/6 PowerOn: pods are gone; power the host on and read On",
	"AwaitNode":   "4/6 AwaitNode: the host boots and registers a new Node",
	"RestoreNode": "5/6 RestoreNode: give the new Node the labels, annotations, taints and cordon of the old one",
	"Reprovision": "6/6 Reprovision: the power cycle did not help; delete the Machine",
	"Done":        "Done: the Node is Ready and has all it had",
}

// teller prints what happens, with the time since the hang.
type teller struct {
	start  time.Time
	client *api.Client
	node   string
}

func (t teller) say(format string, args ...any) { t.at(time.Now(), format, args...) }

func (t teller) at(when time.Time, format string, args ...any) {
	fmt.Printf("%7.2fs  %s\n", when.Sub(t.start).Seconds(), fmt.Sprintf(format, args...))
}

// follow prints the daemon's events about the node until its run ends.
func (t teller) follow(ctx context.Context) error {
	for e, err := range t.client.Events(ctx, 0) {
		if err != nil {
			return fmt.Errorf("follow fenced's events: %w", err)
		}
		if e.Node != t.node {
			continue
		}
		switch e.Type {
		case "Started":
			t.at(e.At, "fenced decides: %s", e.Message)
			t.at(e.At, "%s", meaning[e.Step])
		case "Step":
			t.at(e.At, "%s", meaning[e.Step])
			switch e.Step {
			case "Done":
				return nil
			case "Held", "Aborted", "Reprovisioned":
				return fmt.Errorf("the run ended as %s (%s): %s", e.Step, e.Reason, e.Message)
			}
		case "Action":
			t.at(e.At, "         %s", e.Message)
		case "Failed", "Refused":
			t.at(e.At, "         %s %s: %s", e.Type, e.Reason, e.Message)
		}
	}
	return fmt.Errorf("the run did not end in time: %w", ctx.Err())
}

// figures is the final table. All times count from the moment at which the
// check's timeout was over: the first at which fencing was asked for.
func figures(s *scene.Scene, w *scene.Worker, r wire.RunRecord, lost *corev1.Node, c choice) error {
	var due time.Time
	for _, c := range lost.Status.Conditions {
		if c.Type == corev1.NodeReady {
			due = c.LastTransitionTime.Add(unhealthy)
		}
	}
	deleted, err := s.Cluster.NodeDeletions(w.Name)
	if err != nil {
		return err
	}
	stay := map[string]time.Duration{}
	var proven time.Time
	for _, v := range r.Steps {
		stay[v.Step] += v.Ended.Sub(v.Started)
		if v.Step == "PowerOff" {
			proven = v.Ended
		}
	}
	total := r.Ended.Sub(due)
	fmt.Println("\nFrom the end of the check's timeout:")
	row := func(what string, d time.Duration) { fmt.Printf("  %-58s %9s\n", what, d.Round(time.Millisecond)) }
	row("decision latency: first byte to the BMC", w.FirstAsked().Sub(due))
	row("host proven off (15 s of it: no heartbeat since)", proven.Sub(due))
	row(c.counts, deleted[0].Done.Sub(due))
	row("whole run, Node Ready and restored", total)
	row("whole run without the boot", total-stay["AwaitNode"])
	fmt.Printf("\n%s is Ready as a new Node with its labels, annotations, taints and cordon; it was deleted once, while off.\n", w.Name)
	return nil
}
