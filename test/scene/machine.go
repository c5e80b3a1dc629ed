package scene

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/test/rig"
)

// Machines is the kind of the Machines of a scene's workers.
type Machines string

// The kinds of Machines. Those of the Cluster API, and the BareMetalHosts, are
// on the management API.
const (
	OpenShift  Machines = ""
	ClusterAPI Machines = "ClusterAPI"
	NoMachines Machines = "None"
	// ManagedClusterAPI: the Cluster API's real manager makes the Machines, and gives them names, from a
	// MachineSet for each pool. A worker that is a Stranger is a spare host of its pool.
	ManagedClusterAPI Machines = "ManagedClusterAPI"
)

// ControlPlane is the role of a control-plane host.
const ControlPlane = "master"

// The owners of the Machines, which would replace them.
const (
	machineSet   = "workers"
	controlPlane = "control-plane"
)

// createOwners creates the owners of the Machines.
func (s *Scene) createOwners(ctx context.Context) error {
	switch s.opts.Machines {
	case OpenShift:
		_, err := s.Management.CreateMachineSet(ctx, machineSet)
		return err
	case ClusterAPI:
		if _, err := s.Management.CreateCAPICluster(ctx, rig.CAPICluster{Name: ClusterName}); err != nil {
			return err
		}
		if _, err := s.Management.CreateCAPIMachineSet(ctx, ClusterName, machineSet); err != nil {
			return err
		}
		_, err := s.Management.CreateCAPIControlPlane(ctx, ClusterName, controlPlane)
		return err
	case ManagedClusterAPI:
		return s.startClusterAPI(ctx)
	}
	return nil
}

// createMachine creates a worker's Machine.
func (s *Scene) createMachine(ctx context.Context, w *Worker) error {
	host := ""
	if w.Metal3 {
		host = w.Name
	}
	switch s.opts.Machines {
	case OpenShift:
		m := rig.Machine{Name: w.Name, Role: w.Role, NodeName: w.Name, Labels: Pool(w.Pool), Host: host}
		if !w.Orphan {
			m.MachineSet = machineSet
		}
		_, err := s.Management.CreateMachine(ctx, m)
		return err
	case ClusterAPI:
		m := rig.CAPIMachine{Name: w.Name, Cluster: ClusterName, NodeName: w.Name, Labels: Pool(w.Pool), Host: host}
		switch {
		case w.Orphan:
		case w.Role == ControlPlane:
			m.ControlPlane = controlPlane
		default:
			m.MachineSet = machineSet
		}
		_, err := s.Management.CreateCAPIMachine(ctx, m)
		return err
	}
	return nil
}

// createHost creates a worker's BareMetalHost with its Secret.
func (s *Scene) createHost(ctx context.Context, w *Worker) error {
	h := rig.Host{Name: w.Name, Address: s.named(w).Address(), SkipVerify: true}
	if s.opts.Machines == OpenShift {
		h.Machine = w.Name
	}
	if !w.NoSecret {
		h.User, h.Password = User, w.told()
	}
	if _, err := s.Management.CreateHost(ctx, h); err != nil || s.opts.Machines != ClusterAPI {
		return err
	}
	// The Cluster API's provider has an object of its own between Machine and host.
	patch := fmt.Appendf(nil, `{"spec":{"consumerRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1",`+
		`"kind":"Metal3Machine","namespace":%q,"name":%q}}}`, rig.Namespace, w.Name)
	hosts := s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace)
	if err := rig.WhileBusy(ctx, func() error {
		_, err := hosts.Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("say who uses BareMetalHost %s: %w", w.Name, err)
	}
	return nil
}

// createChecks creates the checks of every kind.
func (s *Scene) createChecks(ctx context.Context) error {
	for _, k := range s.opts.Checks {
		if _, err := s.Management.CreateCheck(ctx, k); err != nil {
			return err
		}
	}
	for _, k := range s.opts.ClusterChecks {
		k.Cluster = ClusterName
		if _, err := s.Management.CreateCAPICheck(ctx, k); err != nil {
			return err
		}
	}
	for _, k := range s.opts.NodeChecks {
		if _, err := s.Cluster.CreateNodeCheck(ctx, k); err != nil {
			return err
		}
	}
	return nil
}
