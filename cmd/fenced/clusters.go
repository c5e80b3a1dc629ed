package main

import (
	"fmt"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/failpoint"
	"github.com/fenced/fenced/internal/k8swatch"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/report"
)

// clusters are the views of the clusters, which run beside the engine. A reload adds and removes
// them.
type clusters struct {
	storeID, instance string
	log               *zap.Logger
	report            *report.Report // set before the first attach

	views live.Map[*k8swatch.Cluster]
	tasks live.Tasks
	gone  atomic.Uint64 // Events that removed clusters had dropped
}

// builtCluster is a cluster that does not run yet.
type builtCluster struct {
	view    *k8swatch.Cluster
	options engine.ClusterOptions
}

// build makes one cluster of a configuration. It reads the kubeconfigs, and talks to nobody.
func (k *clusters) build(cfg config.Config, c config.Cluster, policies manifest.Policies) (builtCluster, error) {
	g, checks := cfg.Guards, checksOf(policies.Checks, c.Name, len(cfg.Clusters))
	view, err := k8swatch.New(k8swatch.Config{
		Name: c.Name, StoreID: k.storeID, Kubeconfig: c.Kubeconfig, Guard: config.CheckGuarded, Namespaces: c.Namespaces, FreshEvery: g.ViewMaxAge / 6,
		Management:                 k8swatch.ManagementConfig(c.Management),
		DeleteControlPlaneMachines: g.DeleteControlPlaneMachines, Checks: checks, Metal3Remediations: c.Metal3Remediations, NeverRestore: cfg.NeverRestore,
		RemediateReadyNodes: c.RemediateReadyNodes, RequestNamespaces: c.RequestNamespaces, ControllerNamespaces: c.ControllerNamespaces,
	}, k.log)
	if err != nil {
		return builtCluster{}, configError{fmt.Errorf("cluster %s: %w", c.Name, err)}
	}
	return builtCluster{view, failpoint.WrapCluster(engine.ClusterOptions{
		Name: c.Name, Mode: c.Mode, Reprovision: c.Reprovision, Isolation: remediate.Isolation(cfg.Isolation),
		IdentityMode: g.Identity, Watch: watch{view}, Kube: kube{view}, Pods: kube{view}.Pods, Checks: view, Requests: view.Requests(), Handovers: handovers{k8swatch.NewHandovers(view)}, RequestScope: c.RequestScope(),
		FileChecks: checks, FileBudgets: budgetsOf(policies.Budgets, c.Name, len(cfg.Clusters)),
		Rules: policy.Rules{
			ControlPlaneNever: g.ControlPlane == config.ControlPlaneNever, ExternalEtcd: g.ExternalEtcd,
			DeleteControlPlaneMachines: g.DeleteControlPlaneMachines, Instance: k.instance, ZoneKey: g.ZoneKey, TargetLimitPause: policy.TargetLimitPause,
			MachineFailureReason: g.MachineFailureReason, WaitForUpgrade: g.WaitForUpgrade,
			Namespaces: c.Namespaces, ManagementNamespace: c.Management.Namespace,
			RequestNamespaces: c.RequestNamespaces, ManagementApart: c.Management.Kubeconfig != "",
		},
		ControlPlaneIsolation: controlPlaneIsolation(cfg.ControlPlaneIsolation),
	})}, nil
}

// attach lets the view of a cluster run, and reports there.
func (k *clusters) attach(b builtCluster) {
	name := b.options.Name
	k.views.Put(name, b.view)
	k.tasks.Begin(name, b.view.Run)
	k.report.Attach(name, b.view)
}

// detach ends the view of a cluster that the engine no longer has.
func (k *clusters) detach(name string) {
	k.report.Detach(name)
	k.tasks.End(name)
	k.gone.Add(k.views.Get(name).EventsDropped())
	k.views.Delete(name)
}

// eventsDropped counts the Events that were not written.
func (k *clusters) eventsDropped() uint64 {
	n := k.gone.Load()
	for _, view := range k.views.All() {
		n += view.EventsDropped()
	}
	return n
}
