package rig

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var standInMachines = schema.GroupVersionResource{Group: capiInfraGroup, Version: "v1", Resource: "standinmachines"}

// Provider stands in for the providers of infrastructure and control plane of the Cluster API, whose
// contracts it keeps. It has hosts in pools. A Machine gets one that no Machine had before: a host that
// was given back needs a look by a person first. Its hosts boot by themselves: a Node has the
// provider ID of its host.
type Provider struct {
	on    *ControlPlane
	hosts map[string][]string // by pool
	given map[string]bool     // by provider ID
}

func ProviderID(host string) string { return "stand-in:///" + host }

// NewProvider installs the kinds of the provider.
func (a *ClusterAPI) NewProvider(ctx context.Context, hosts map[string][]string) (*Provider, error) {
	p := &Provider{on: a.on, hosts: hosts, given: map[string]bool{}}
	return p, a.on.InstallCRDs(ctx, CAPIStandIn)
}

// CreateCluster creates a Cluster whose infrastructure and control plane are ready, and the
// objects that the manager waits for. Its Nodes are on the API server nodes.
func (p *Provider) CreateCluster(ctx context.Context, name string, nodes *ControlPlane) error {
	u, err := url.Parse(nodes.URL())
	if err != nil {
		return fmt.Errorf("find the endpoint of Cluster %s: %w", name, err)
	}
	number, err := strconv.ParseInt(u.Port(), 10, 64)
	if err != nil {
		return fmt.Errorf("find the endpoint of Cluster %s: %w", name, err)
	}
	endpoint := map[string]any{"host": u.Hostname(), "port": number}
	labels := map[string]string{capiClusterLabel: name}
	for _, x := range []struct {
		group, kind    string
		initialization map[string]any
	}{
		{capiInfraGroup, "StandInCluster", map[string]any{"provisioned": true}},
		{capiControlPlane, "StandInControlPlane", map[string]any{"controlPlaneInitialized": true}},
	} {
		obj := object(x.group+"/v1", x.kind, name, labels, nil)
		obj.Object["spec"] = map[string]any{"controlPlaneEndpoint": endpoint}
		status := map[string]any{"initialization": x.initialization, "externalManagedControlPlane": true}
		if _, err := p.on.createWithStatus(ctx, obj, status); err != nil {
			return err
		}
	}
	v := capi("v1beta2")
	cluster := v.object("Cluster", name, nil, nil)
	cluster.Object["spec"] = map[string]any{
		"controlPlaneEndpoint": endpoint,
		"infrastructureRef":    v.ref(capiInfraGroup, "StandInCluster", name),
		"controlPlaneRef":      v.ref(capiControlPlane, "StandInControlPlane", name),
	}
	_, err = p.on.createWithStatus(ctx, cluster, nil)
	return err
}

// CreateMachineSet creates a MachineSet of a pool, whose Machines have the labels, and their template.
func (p *Provider) CreateMachineSet(ctx context.Context, cluster, pool string, replicas int, labels map[string]string) error {
	template := object(capiInfraGroup+"/v1", "StandInMachineTemplate", pool, map[string]string{capiClusterLabel: cluster}, nil)
	template.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"pool": pool}}}
	if _, err := p.on.createWithStatus(ctx, template, nil); err != nil {
		return err
	}
	_, err := p.on.createWithStatus(ctx, capi("v1beta2").machineSet(cluster, pool, replicas, labels, "StandInMachineTemplate"), nil)
	return err
}

// Run gives hosts to Machines until ctx ends. What fails is done in a later round.
func (p *Provider) Run(ctx context.Context) {
	for Sleep(ctx, 200*time.Millisecond) {
		_ = p.round(ctx) // an error is that of a busy API server
	}
}

func (p *Provider) round(ctx context.Context) error {
	client := p.on.dynamic.Resource(standInMachines).Namespace(Namespace)
	machines, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, m := range machines.Items {
		id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID")
		p.given[id] = true
	}
	for _, m := range machines.Items {
		id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID")
		if id == "" {
			pool, _, _ := unstructured.NestedString(m.Object, "spec", "pool")
			if id = p.free(pool); id == "" {
				continue
			}
			if _, err := client.Patch(ctx, m.GetName(), types.MergePatchType, fmt.Appendf(nil, `{"spec":{"providerID":%q}}`, id), metav1.PatchOptions{}); err != nil {
				return err
			}
			p.given[id] = true
		}
		if done, _, _ := unstructured.NestedBool(m.Object, "status", "initialization", "provisioned"); done {
			continue
		}
		provisioned := []byte(`{"status":{"initialization":{"provisioned":true}}}`)
		if _, err := client.Patch(ctx, m.GetName(), types.MergePatchType, provisioned, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}

// free is the provider ID of a host that no Machine had, or empty.
func (p *Provider) free(pool string) string {
	for _, host := range p.hosts[pool] {
		if id := ProviderID(host); !p.given[id] {
			return id
		}
	}
	return ""
}
