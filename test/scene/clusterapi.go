package scene

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/test/rig"
)

// ofClusterAPI reports whether the Machines are the Cluster API's, whoever makes them.
func (m Machines) ofClusterAPI() bool { return m == ClusterAPI || m == ManagedClusterAPI }

// startClusterAPI starts the real manager of the Cluster API, with a Cluster and a provider that has
// all workers as hosts.
func (s *Scene) startClusterAPI(ctx context.Context) (err error) {
	if s.clusterAPI, err = s.Management.StartClusterAPI(ctx); err != nil {
		return err
	}
	hosts, spare, replicas := map[string][]string{}, map[string][]string{}, map[string]int{}
	for _, spec := range s.opts.Workers {
		if spec.Stranger {
			spare[spec.pool()] = append(spare[spec.pool()], spec.Name)
			continue
		}
		hosts[spec.pool()] = append(hosts[spec.pool()], spec.Name)
		replicas[spec.pool()]++
	}
	for pool, names := range spare {
		hosts[pool] = append(hosts[pool], names...)
	}
	provider, err := s.clusterAPI.NewProvider(ctx, hosts)
	if err != nil {
		return err
	}
	if err := s.clusterAPI.ConnectCluster(ctx, ClusterName, s.Cluster); err != nil {
		return err
	}
	s.wg.Go(func() { provider.Run(s.life) })
	if err := provider.CreateCluster(ctx, ClusterName, s.Cluster); err != nil {
		return err
	}
	for pool, n := range replicas {
		if err := provider.CreateMachineSet(ctx, ClusterName, pool, n, Pool(pool)); err != nil {
			return err
		}
	}
	return nil
}

// awaitMachines waits until the manager has linked a Machine with the Node of each worker.
func (s *Scene) awaitMachines(ctx context.Context) error {
	for _, w := range s.Workers {
		for !w.Stranger {
			m, err := s.MachineOf(ctx, w.Name)
			if err != nil {
				return err
			}
			if phase, _, _ := unstructured.NestedString(m.Object, "status", "phase"); phase == "Running" {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for the Machine of %s, last seen: %v: %w", w.Name, m.Object, ctx.Err())
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return nil
}

// MachineOf is the Machine that the manager of the Cluster API has linked with a Node; an empty object if
// there is none.
func (s *Scene) MachineOf(ctx context.Context, node string) (*unstructured.Unstructured, error) {
	var machines *unstructured.UnstructuredList
	err := rig.WhileBusy(ctx, func() (err error) {
		machines, err = s.Management.Dynamic().Resource(rig.CAPIResource("v1beta2", "machines")).Namespace(rig.Namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the Machine of Node %s: %w", node, err)
	}
	for i := range machines.Items {
		if name, _, _ := unstructured.NestedString(machines.Items[i].Object, "status", "nodeRef", "name"); name == node {
			return &machines.Items[i], nil
		}
	}
	return &unstructured.Unstructured{}, nil
}
