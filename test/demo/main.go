// Command demo fences a hung node for real, on this machine alone: a control
// plane built from source, three workers with simulated hosts behind IPMI and
// Redfish, and fenced and fencectl as processes. It needs Go and git, no root
// and no package, and ends non-zero when the node does not come back whole.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

const (
	hungWorker = "worker-1"
	unhealthy  = 2 * time.Second // the check's timeout
	playTime   = 2 * time.Minute // from the curtain to the end
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
	fmt.Println("fenced demo: one host of three hangs. A first run builds a Kubernetes control plane from source,")
	fmt.Println("which takes about 10 minutes on 2 cores, once; the play itself takes about a minute.")
	dir, err := os.MkdirTemp("", "fenced-demo-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	s, err := prepare(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Stop()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nthe logs are kept in %s; the end of fenced's:\n%s", err, s.KeepLogs(), s.LogTail(50))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, playTime)
	defer cancel()
	if _, err := s.StartDaemon(ctx); err != nil {
		return err
	}
	w := s.Worker(hungWorker)
	return play(ctx, s, w)
}

// prepare builds what is needed, fenced and fencectl into dir, and sets the
// scene.
func prepare(ctx context.Context, dir string) (*scene.Scene, error) {
	if _, err := rig.Binaries(ctx, os.Stdout); err != nil {
		return nil, err
	}
	fmt.Println("building fenced and fencectl ...")
	programs, err := scene.Build(ctx, dir, false)
	if err != nil {
		return nil, err
	}
	fmt.Println("starting etcd, kube-apiserver, kube-controller-manager and three workers ...")
	return scene.New(ctx, scene.Options{
		Programs: programs,
		Checks:   []rig.Check{scene.Metal(unhealthy.String())},
		Workers: []scene.Spec{
			{Name: "worker-1", Protocol: scene.IPMI, Metal3: true},
			{Name: "worker-2", Protocol: scene.IPMI},
			{Name: "worker-3", Protocol: scene.Redfish},
		},
		BootDelay: 3 * time.Second,
	})
}

// play hangs the host, tells what happens, and checks the end.
func play(ctx context.Context, s *scene.Scene, w *scene.Worker) error {
	told := teller{start: time.Now(), client: api.New(s.Socket()), node: w.Name}
	w.Kubelet.Hang()
	told.say("%s hangs: its power is on, its kubelet is silent. From here on nobody touches anything.", w.Name)
	lost, err := s.Cluster.WaitNode(ctx, w.Name, func(n *corev1.Node) bool {
		return rig.ReadyStatus(n) == corev1.ConditionUnknown
	})
	if err != nil {
		return err
	}
	told.say("kube-controller-manager sets Ready=Unknown; the MachineHealthCheck allows that for %s", unhealthy)
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
	return figures(s, w, runs[0], lost)
}

// verify looks at the cluster itself: fenced's own word is no proof.
func verify(ctx context.Context, s *scene.Scene, w *scene.Worker) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
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
		return fmt.Errorf("the API server's audit log has %d deletions of Node %s, not one", len(deleted), w.Name)
	}
	return s.Died()
}
