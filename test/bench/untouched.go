package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/fenced/fenced/test/rig"
)

// untouched is an error when fenced acted on anything but the targets: a fast
// answer to the wrong question is worth nothing.
func (b *bench) untouched(ctx context.Context) error {
	nodes, err := b.uids(ctx, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "")
	if err != nil {
		return err
	}
	machines, err := b.uids(ctx, rig.MachineResource, rig.Namespace)
	if err != nil {
		return err
	}
	kept := maps.Clone(b.fleet.machines)
	for _, n := range slices.Concat(b.fleet.cloud, b.fleet.together) {
		delete(kept, n.Name)
	}
	errs := []error{replaced("Node", b.fleet.others, b.fleet.nodes, nodes), replaced("Machine", slices.Sorted(maps.Keys(kept)), kept, machines)}
	if asked := b.metal.decoy.asked.Load(); asked > 0 {
		errs = append(errs, fmt.Errorf("BMCs of healthy hosts were sent %d datagrams", asked))
	}
	return errors.Join(errs...)
}

// replaced names the objects that are not any more what they were.
func replaced(kind string, names []string, before, now map[string]string) error {
	var gone []string
	for _, name := range names {
		if now[name] != before[name] {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return fmt.Errorf("%d objects of kind %s that nothing was wrong with are gone, %s first", len(gone), kind, gone[0])
}

// uids lists a resource.
func (b *bench) uids(ctx context.Context, r schema.GroupVersionResource, namespace string) (map[string]string, error) {
	cfg, err := b.cluster.RESTConfig("bench", rig.AdminGroup)
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	list, err := client.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the %s: %w", r.Resource, err)
	}
	all := make(map[string]string, len(list.Items))
	for _, o := range list.Items {
		all[o.Name] = string(o.UID)
	}
	return all, nil
}
