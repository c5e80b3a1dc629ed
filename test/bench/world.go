package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/test/apiserver"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/rig"
)

// The words that make this program one of the processes around the daemon of a scale measurement.
const (
	apiWord  = "scale-api"  // the Kubernetes API in memory, with its fleet
	bmcsWord = "scale-bmcs" // every BMC
)

// worldOrder is a question to either; one question is answered before the next is read.
type worldOrder struct {
	Dir    string   // of scale-api: where its files go
	Nodes  int      // of scale-api: how many it makes; 0 asks what has become of them
	Reset  bool     // of scale-bmcs: forget how often they were asked
	First  []int    // of scale-bmcs: when these were asked first
	Spared []string // of scale-api: names of Nodes that may be gone
}

type worldAnswer struct {
	Error string
	// Kubeconfig is fenced's, Admin an administrator's.
	Kubeconfig, Admin string
	Port              int
	First             []time.Time
	ipmisim.Tally
	// Deleted are the Nodes and Machines that were deleted, as kind/name.
	Deleted []string
}

type world struct {
	*process
	orders  *json.Encoder
	answers *json.Decoder
	in      io.Closer
}

func startWorld(dir, word string) (*world, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	w := &world{process: newProcess(dir, word, self, word)}
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", word, err)
	}
	read, write, err := os.Pipe() // Wait closes a StdoutPipe before all of it was read
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", word, err)
	}
	w.cmd.Stdout, w.in, w.orders, w.answers = write, in, json.NewEncoder(in), json.NewDecoder(read)
	defer write.Close()
	return w, w.start()
}

func (w *world) ask(o worldOrder) (a worldAnswer, err error) {
	if err = w.orders.Encode(o); err == nil {
		err = w.answers.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return a, fmt.Errorf("%s: %w\n%s", w.name, err, w.logTail())
	}
	return a, nil
}

func (w *world) end() {
	_ = w.in.Close() // it ends by itself then
	select {
	case <-w.done:
	case <-time.After(10 * time.Second):
		w.stop()
	}
}

// serveWorld answers orders until in ends.
func serveWorld(in io.Reader, out io.Writer, answer func(worldOrder) (worldAnswer, error)) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o worldOrder
		if err := orders.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		a, err := answer(o)
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func serveBMCs(ctx context.Context, in io.Reader, out io.Writer) error {
	many, err := ipmisim.StartMany(ctx, ipmisim.Options{User: user, Password: password})
	if err != nil {
		return err
	}
	defer many.Stop()
	return serveWorld(in, out, func(o worldOrder) (a worldAnswer, _ error) {
		a.Port, a.Tally = many.Port(), many.Tally()
		for _, number := range o.First {
			a.First = append(a.First, many.FirstAsked(number))
		}
		if o.Reset {
			many.Reset()
		}
		return a, nil
	})
}

// scaleTimeout is that of the check: short, because it is what a measurement waits for.
const scaleTimeout = 3 * time.Second

// serveAPI is the Kubernetes API in memory, with a Node and a Machine for each number, all Ready.
func serveAPI(ctx context.Context, in io.Reader, out io.Writer) error {
	debug.SetGCPercent(20) // it has several gigabytes, and makes little garbage
	var server *apiserver.Server
	var cluster *rig.ControlPlane
	defer func() {
		if cluster != nil {
			cluster.Stop()
		}
	}()
	return serveWorld(in, out, func(o worldOrder) (a worldAnswer, err error) {
		if cluster != nil {
			return deletedOf(cluster, o.Spared)
		}
		cluster, err = rig.Start(ctx, rig.Options{NoManager: true, Dir: o.Dir, StandIn: func(audit io.Writer) (rig.API, error) {
			server, err = apiserver.Start(apiserver.Options{Audit: audit})
			return server, err
		}})
		if err != nil {
			return a, err
		}
		if err = fillWorld(ctx, cluster, server, o.Nodes); err != nil {
			return a, err
		}
		if a.Kubeconfig, err = cluster.Kubeconfig(rig.FencedUser); err == nil {
			a.Admin, err = cluster.Kubeconfig("bench", rig.AdminGroup)
		}
		return a, err
	})
}

func scaleName(number int) string { return fmt.Sprintf("node-%06d", number) }

// zones is how many zones the Nodes are in.
const zones = 50

func fillWorld(ctx context.Context, c *rig.ControlPlane, s *apiserver.Server, nodes int) error {
	set, err := c.CreateMachineSet(ctx, "workers")
	if err != nil {
		return err
	}
	owner := *metav1.NewControllerRef(set, set.GroupVersionKind())
	for i := range nodes {
		n := newNode(scaleName(i), ipmisim.ManyUUID(i), i)
		n.Labels["topology.kubernetes.io/zone"] = fmt.Sprintf("zone-%d", i%zones)
		n.Status.Addresses[0].Address = fmt.Sprintf("100.%d.%d.%d", 64+i>>16, i>>8&0xff, i&0xff) // of a range that no host has for its own
		if err := s.Add(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, n); err != nil {
			return err
		}
		m := newMachine(scaleName(i), metalPool, owner)
		m.Object["status"] = machineStatus(scaleName(i))
		if err := s.Add(rig.MachineResource, m); err != nil {
			return err
		}
	}
	_, err = c.CreateCheck(ctx, rig.Check{Name: metalPool, Match: pool(metalPool), Conditions: rig.NotReadyFor(scaleTimeout.String()),
		MaxUnhealthy: "40%", Strategy: rig.BareMetalStrategy})
	return err
}

// deletedOf lists what was deleted, but for the Nodes of these names.
func deletedOf(c *rig.ControlPlane, spared []string) (a worldAnswer, err error) {
	for _, resource := range []string{"nodes", "machines"} {
		all, err := c.AllDeletions(resource)
		if err != nil {
			return a, err
		}
		for _, d := range all {
			if resource != "nodes" || !slices.Contains(spared, d.Name) {
				a.Deleted = append(a.Deleted, resource+"/"+d.Name)
			}
		}
	}
	return a, nil
}
