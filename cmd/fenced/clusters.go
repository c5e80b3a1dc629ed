package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/failpoint"
	"github.com/fenced/fenced/internal/k8swatch"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/report"
	"github.com/fenced/fenced/internal/typo"
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
// refused says why nothing may begin there; "" if nothing forbids it.
func (k *clusters) build(cfg config.Config, c config.Cluster, policies manifest.Policies, refused string) (builtCluster, error) {
	g, checks := cfg.Guards, checksOf(policies.Checks, c.Name, len(cfg.Clusters))
	view, err := k8swatch.New(k8swatch.Config{
		Config: view.Config{
			Name: c.Name, StoreID: k.storeID, Kubeconfig: c.Kubeconfig, Guard: config.CheckGuarded, Namespaces: c.Namespaces, FreshEvery: g.ViewMaxAge / 6,
			Management: view.ManagementConfig(c.Management), Checks: checks,
			Metal3Remediations: c.Metal3Remediations, RemediateReadyNodes: c.RemediateReadyNodes, RequestNamespaces: c.RequestNamespaces,
		},
		DeleteControlPlaneMachines: g.DeleteControlPlaneMachines, NeverRestore: cfg.NeverRestore, ControllerNamespaces: c.ControllerNamespaces,
	}, k.log)
	if err != nil {
		return builtCluster{}, configError{fmt.Errorf("cluster %s: %w", c.Name, err)}
	}
	return builtCluster{view, failpoint.WrapCluster(engine.ClusterOptions{
		Name: c.Name, Mode: c.Mode, Reprovision: c.Reprovision, Isolation: remediate.Isolation(cfg.Isolation),
		IdentityMode: g.Identity, Watch: watch{view}, Kube: kube{view}, Pods: kube{view}.Pods, Checks: view, Requests: view.Requests(), RequestScope: c.RequestScope(),
		FileChecks: checks, FileBudgets: budgetsOf(policies.Budgets, c.Name, len(cfg.Clusters)), FilesRefused: refused,
		Rules: policy.Rules{
			ControlPlaneNever: g.ControlPlane == config.ControlPlaneNever, ExternalEtcd: g.ExternalEtcd,
			DeleteControlPlaneMachines: g.DeleteControlPlaneMachines, Instance: k.instance, ZoneKey: g.ZoneKey, TargetLimitPause: policy.TargetLimitPause,
			MachineFailureReason: g.MachineFailureReason, WaitForUpgrade: g.WaitForUpgrade,
			Namespaces: c.Namespaces, ManagementNamespace: c.Management.Namespace,
			RequestNamespaces: c.RequestNamespaces, ManagementApart: c.Management.Kubeconfig != "",
		},
		RackKey:               g.RackKey,
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

// kubeconfig is the file with which the Nodes of a cluster are watched; "" if there is no such cluster.
func (k *clusters) kubeconfig(name string) string {
	if view := k.views.Get(name); view != nil {
		return view.Servers().Work.Kubeconfig
	}
	return ""
}

// eventsDropped counts the Events that were not written.
func (k *clusters) eventsDropped() uint64 {
	n := k.gone.Load()
	for _, view := range k.views.All() {
		n += view.EventsDropped()
	}
	return n
}

// loadPolicies reads the checks and budgets of policies.d; a missing directory, or an
// empty path, holds none.
func loadPolicies(cfg config.Config) (manifest.Policies, error) {
	all, refused := readPolicies(cfg)
	var errs []error
	for _, f := range refused {
		errs = append(errs, f.errs...)
	}
	return all, errors.Join(errs...)
}

// policyFile is a file of policies.d.
type policyFile struct {
	found manifest.Policies // all that it names, also what is wrong
	errs  []error
}

// readPolicies reads what is good in policies.d, and lists the files in which something is not.
func readPolicies(cfg config.Config) (all manifest.Policies, refused []*policyFile) {
	var files []*policyFile
	byName := map[string]*policyFile{}
	err := config.ReadPolicies(cfg, func(file string, data []byte) {
		found, err := manifest.DecodePolicies(file, data)
		f := &policyFile{found: found}
		if err != nil {
			f.errs = []error{err}
		}
		files, byName[file] = append(files, f), f
	})
	first := map[policy.CheckID]string{}
	examine := func(f *policyFile, id policy.CheckID, clusters []string) (good bool) {
		source := id.Source
		id.Source = ""
		id.APIVersion, _, _ = strings.Cut(id.APIVersion, "/") // one check at two versions is there twice
		if err := placed(cfg, source, clusters); err != nil {
			f.errs = append(f.errs, err)
		}
		if before := first[id]; before != "" {
			f.errs = append(f.errs, fmt.Errorf("%s: %s %s is in %s already", source, id.Kind, id.Name, before))
			other := byName[before[:strings.LastIndexByte(before, ':')]]
			f.found.Clusters, f.found.AnyCluster = append(f.found.Clusters, other.found.Clusters...), f.found.AnyCluster || other.found.AnyCluster
			return false
		}
		first[id] = source
		return true
	}
	for _, f := range files {
		for _, c := range f.found.Checks {
			if examine(f, c.ID(), c.Clusters) {
				all.Checks = append(all.Checks, c)
			}
		}
		for _, b := range f.found.Budgets {
			if examine(f, policy.CheckID{Kind: policy.DisruptionBudgetKind, Name: b.Name, Source: b.Source}, b.Clusters) {
				all.Budgets = append(all.Budgets, b)
			}
		}
	}
	refused = slices.DeleteFunc(files, func(f *policyFile) bool { return len(f.errs) == 0 })
	if err != nil { // nobody knows what is in there
		refused = append([]*policyFile{{manifest.Policies{AnyCluster: true}, []error{err}}}, refused...)
	}
	return all, refused
}

// concerns says whether a file with an error may hold something for a cluster. A name that no cluster has may be a slip.
func (f *policyFile) concerns(cfg config.Config, cluster string) bool {
	return f.found.AnyCluster || slices.Contains(f.found.Clusters, cluster) ||
		slices.ContainsFunc(f.found.Clusters, func(name string) bool { return !slices.Contains(cfg.ClusterNames(), name) })
}

// filesRefused says why nothing may begin in a cluster: what is wrong in the files that may hold a protection, a budget or an
// entry for it; "" if nothing is. // I18
func filesRefused(cfg config.Config, cluster string, policies []*policyFile, hosts config.Hosts) string {
	var errs []error
	for _, f := range policies {
		if f.concerns(cfg, cluster) {
			errs = append(errs, f.errs...)
		}
	}
	if err := errors.Join(append(errs, hosts.Unread)...); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return ""
}

// placed says what is wrong with the clusters that a document of policies.d is
// for.
func placed(cfg config.Config, source string, clusters []string) error {
	var errs []error
	for _, cluster := range clusters {
		if !slices.Contains(cfg.ClusterNames(), cluster) {
			errs = append(errs, fmt.Errorf("%s: no cluster %q is configured%s", source, cluster, typo.Hint(cluster, cfg.ClusterNames())))
		}
	}
	if len(clusters) == 0 && len(cfg.Clusters) > 1 {
		errs = append(errs, fmt.Errorf("%s: several clusters are configured; name one with the annotation fenced.io/cluster, or spec.clusters of fenced's own kinds", source))
	}
	return errors.Join(errs...)
}

// checksOf picks the checks from files that are meant for one cluster.
func checksOf(all []policy.Check, cluster string, clusters int) []policy.Check {
	return meantFor(all, func(c *policy.Check) []string { return c.Clusters }, cluster, clusters)
}

// budgetsOf picks the budgets that are meant for one cluster.
func budgetsOf(all []policy.DisruptionBudget, cluster string, clusters int) []policy.DisruptionBudget {
	return meantFor(all, func(b *policy.DisruptionBudget) []string { return b.Clusters }, cluster, clusters)
}

// meantFor picks the documents that are meant for one of so many clusters: one that names none is,
// while there is no choice.
func meantFor[T any](all []T, named func(*T) []string, cluster string, clusters int) (own []T) {
	for i := range all {
		if names := named(&all[i]); len(names) == 0 && clusters == 1 || slices.Contains(names, cluster) {
			own = append(own, all[i])
		}
	}
	return own
}

// policyChanges says which checks and budgets of policies.d were added, removed and changed;
// "" for none. That one stands on another line is no change.
func policyChanges(before, after manifest.Policies) string {
	return config.MapChanges(policiesByName(before), policiesByName(after), func(old, p any) bool { return reflect.DeepEqual(old, p) })
}

// policiesByName are the checks and budgets without where they stand.
func policiesByName(p manifest.Policies) map[string]any {
	all := map[string]any{}
	for _, c := range p.Checks {
		c.Source = ""
		all[c.Kind+" "+c.Key()] = c
	}
	for _, b := range p.Budgets {
		b.Source = ""
		all[policy.DisruptionBudgetKind+" "+b.Name] = b
	}
	return all
}

// unwatchedTemplates refuses checks whose template makes requests of a kind that no check of
// policies.d named when the cluster was built: it watches the kinds from then only. A request that it
// does not see must not look like none. apart: the management API is a separate one. // I22
func unwatchedTemplates(built, checks []policy.Check, apart bool) error {
	watched := map[string]bool{}
	for i := range built {
		for _, t := range templatesOf(&built[i]) {
			for _, api := range apisOf(&built[i], apart) {
				watched[api+" "+t.APIVersion+" "+t.Kind] = true
			}
		}
	}
	var errs []error
	for i := range checks {
		c := &checks[i]
		for _, t := range templatesOf(c) {
			unseen := func(api string) bool { return !watched[api+" "+t.APIVersion+" "+t.Kind] }
			if !t.IsOwn() && slices.ContainsFunc(apisOf(c, apart), unseen) {
				errs = append(errs, needRestart("%s: the %s %s names a template of the kind %s of %s, whose requests fenced watches only after a restart: restart it instead",
					c.Source, c.Kind, c.Key(), t.Kind, t.APIVersion))
			}
		}
	}
	return errors.Join(errs...)
}

// apisOf are the API servers on which the view watches the requests of a check: that of its Machines, and for a FencePolicy that selects Machines
// both.
func apisOf(c *policy.Check, apart bool) []string {
	const work, manage = "workload", "management"
	switch {
	case !apart:
		return []string{work}
	case c.APIVersion == policy.ClusterAPIV1Beta1, c.APIVersion == policy.ClusterAPIV1Beta2:
		return []string{manage}
	case c.Kind == policy.FencePolicyKind && !c.SelectsNodes:
		return []string{work, manage}
	}
	return []string{work}
}

func templatesOf(c *policy.Check) (list []policy.Template) {
	if c.Template != nil {
		list = append(list, *c.Template)
	}
	for _, e := range c.Escalation {
		list = append(list, e.Template)
	}
	return list
}
