package look

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// The leader Leases of other remediation controllers, and the namespace of
// OpenShift's. Sources: the LeaderElectionID of the managers of
// cluster-api-provider-baremetal, machine-api-operator and cluster-api.
const (
	machineAPINamespace = "openshift-machine-api"
	powerCycleLeader    = "controller-leader-election-capbm"
	checkLeader         = "cluster-api-provider-healthcheck-leader"
	clusterAPILeader    = "controller-leader-election-capi"
	metal3Leader        = "controller-leader-election-capm3"
)

// leader names the controllers that would act on the Machine, if their leader
// Leases have not expired. Without a Machine there are none.
func (l *looker) leader(ctx context.Context) (string, error) {
	t := l.run.Target
	if t.Machine == "" {
		return "", nil
	}
	checks, err := l.coveringChecks(ctx)
	if err != nil {
		return "", err
	}
	if client.GroupOf(t.MachineAPI) == client.ClusterGroup {
		for i := range checks {
			if checks[i].Template == nil { // its own manager marks the Machine
				return l.managerNow(ctx, clusterAPILeader)
			}
		}
		return l.mirrorRival(ctx)
	}
	return machineRivals(l.look.FreshMachine, checks, func(name string) (string, error) { return l.leaderNow(ctx, name) })
}

// mirrorRival names the controller of OpenShift's checks if it would delete the copy that a Machine of the
// Cluster API has in OpenShift's API, and that the Node names. It does not ask which API is authoritative,
// and the deletion of the copy is one of the Machine. // I22
func (l *looker) mirrorRival(ctx context.Context) (string, error) {
	n := l.look.FreshNode
	if n == nil || n.OpenShiftMachine == "" {
		return "", nil
	}
	namespace, name, _ := strings.Cut(n.OpenShiftMachine, "/")
	u, err := l.r.Servers.Machine(ctx, remediate.Target{Namespace: namespace, Machine: name, MachineAPI: policy.OpenShiftMachineAPI})
	if client.IsGone(err, name) || client.MayBeUnserved(err) && l.r.Servers.Work.IsNotServed(ctx, client.Resource{Kind: "Machine", Group: client.MachineGroup, Plural: client.MachineGVR.Resource}) {
		return "", nil
	}
	var m policy.Machine
	if err == nil {
		m, err = manifest.Machine(u.Object)
	}
	if err != nil {
		return "", fmt.Errorf("read Machine %s: %w", n.OpenShiftMachine, err)
	}
	checks, err := l.checksNow(ctx, false, namespace)
	if err != nil {
		return "", err
	}
	var covering []policy.Check
	for i := range checks {
		if c := &checks[i]; !c.Paused && (c.Selector == nil || c.Covers(&m, n)) {
			covering = append(covering, *c)
		}
	}
	if deletes, _ := askedOfController(&m, covering); !deletes {
		return "", nil
	}
	return l.leaderNow(ctx, checkLeader)
}

// machineRivals names the controllers of OpenShift's Machine API that are alive and
// would act on this Machine. checks cover it and are not paused; holder names who
// holds a leader Lease. docs/install.md has the same rule for administrators. // I22
//
//   - The controller of the checks deletes the Machine, or asks another remediator
//     to repair it, if a check says so. For a check with the bare-metal strategy it
//     only annotates the Machine, except that it deletes a Failed one.
//   - The bare-metal actuator switches a host off while its Machine carries that
//     annotation or is being deleted. It leaves all other hosts alone. It counts
//     already if a living controller may annotate the Machine at any moment.
func machineRivals(m *policy.Machine, checks []policy.Check, holder func(name string) (string, error)) (string, error) {
	if m == nil {
		return "", nil
	}
	deletes, annotates := askedOfController(m, checks)
	actuates := m.ExternalRemediationRequested || m.Deleting
	var found []string
	if deletes || annotates {
		controller, err := holder(checkLeader)
		if err != nil {
			return "", err
		}
		if deletes && controller != "" {
			found = append(found, controller)
		}
		actuates = actuates || annotates && controller != ""
	}
	if actuates {
		actuator, err := holder(powerCycleLeader)
		if err != nil {
			return "", err
		}
		if actuator != "" {
			found = append(found, actuator)
		}
	}
	return strings.Join(found, "; "), nil
}

// askedOfController reports whether any of the checks makes its own controller
// delete the Machine or ask another remediator, and whether any makes it annotate
// the Machine for the bare-metal actuator.
func askedOfController(m *policy.Machine, checks []policy.Check) (deletes, annotates bool) {
	for i := range checks {
		switch c := &checks[i]; {
		case c.Strategy == policy.PowerCycleHosts && m.Phase != "Failed":
			annotates = true
		case !c.IsHandledByFenced():
			deletes = true
		}
	}
	return deletes, annotates
}

// coveringChecks returns the MachineHealthChecks that cover the target and are not
// paused. A paused check is fenced's, if it was handed over, or nobody's.
func (l *looker) coveringChecks(ctx context.Context) ([]policy.Check, error) {
	m, t := l.look.FreshMachine, l.run.Target
	switch {
	case m == nil && l.look.Seen.Machine.Exists == remediate.CannotTell:
		return nil, fmt.Errorf("find the checks of Machine %s/%s: it could not be read", t.Namespace, t.Machine)
	case m == nil:
		return nil, nil
	}
	if l.ahead.checksErr != nil {
		return nil, l.ahead.checksErr
	}
	var found []policy.Check
	for i := range l.ahead.checks {
		if c := &l.ahead.checks[i]; l.covers(c) && !c.Paused {
			found = append(found, *c)
		}
	}
	return found, nil
}

// leaderNamespaces are where the managers are installed whose namespace their administrator may choose, by the name of
// their Lease: the defaults of clusterctl, OpenShift, Rancher and OLM. clusters[].controllerNamespaces
// adds others. Nobody else may say that such a manager is alive. // I22
var leaderNamespaces = map[string][]string{
	clusterAPILeader: {"capi-system", "openshift-cluster-api", "cattle-capi-system", "cattle-provisioning-capi-system"},
	metal3Leader:     {"capm3-system", "openshift-cluster-api"},
	nodeCheckLeader:  {"openshift-workload-availability", "openshift-operators", "operators", "medik8s"},
}

// Leaders says which other controllers are alive, by their leader Leases.
type Leaders struct {
	Leases *client.LeaseClock
	// Namespaces are those in which the leader Lease of another remediator counts, beside the ones where
	// they are installed by default: the administrator names them.
	Namespaces []string
	Log        *zap.Logger
	told       sync.Map // when the log last had the Leases of a name that do not count
}

// in names the leader of a manager, by the name of its Lease.
func (c *Leaders) in(ctx context.Context, cl *client.Conn, name string) (string, error) {
	namespaces := slices.Concat(leaderNamespaces[name], c.Namespaces)
	found := make([]string, len(namespaces))
	errs := make([]error, len(namespaces))
	var g sync.WaitGroup
	for i, namespace := range namespaces {
		g.Go(func() {
			leases, server, err := leasesNamed(ctx, cl, namespace, name)
			errs[i] = err
			for j := range leases {
				found[i] = c.Leases.HolderOf(&leases[j], client.LongestLeadership, server, time.Now())
			}
		})
	}
	g.Wait()
	if i := slices.IndexFunc(found, func(who string) bool { return who != "" }); i >= 0 {
		return found[i], nil
	}
	c.reportElsewhere(ctx, cl, name)
	return "", errors.Join(errs...)
}

const (
	reportElsewhereEvery = time.Hour
	elsewhereShown       = 3 // namespaces
)

// reportElsewhere logs now and then where a Lease is held that does not count: a manager that its administrator installed
// there acts beside fenced until the namespace is named.
func (c *Leaders) reportElsewhere(ctx context.Context, cl *client.Conn, name string) {
	now := time.Now()
	if last, told := c.told.Swap(name, now); told && now.Sub(last.(time.Time)) < reportElsewhereEvery {
		c.told.Store(name, last)
		return
	}
	if found, err := c.elsewhere(ctx, cl, name); err == nil && len(found) > 0 {
		c.Log.Warn("a leader Lease that does not count: if its manager runs there, add the namespace to clusters[].controllerNamespaces",
			zap.String("lease", name), zap.Strings("namespaces", found[:min(len(found), elsewhereShown)]), zap.Int("count", len(found)))
	}
}

// elsewhere names in which other namespaces Leases of this name have a holder. They do not count.
func (c *Leaders) elsewhere(ctx context.Context, cl *client.Conn, name string) ([]string, error) {
	counting := slices.Concat(leaderNamespaces[name], c.Namespaces)
	leases, _, err := leasesNamed(ctx, cl, metav1.NamespaceAll, name)
	var found []string
	for i := range leases {
		if l := &leases[i]; !slices.Contains(counting, l.Namespace) && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			found = append(found, l.Namespace)
		}
	}
	return found, err
}

// leasesNamed returns the Leases of a name in one namespace or, for some of them, in all. server is the API server's time.
func leasesNamed(ctx context.Context, cl *client.Conn, namespace, name string) (leases []coordinationv1.Lease, server time.Time, err error) {
	ctx, clock := client.WithClock(ctx)
	list, err := cl.Typed.Leases(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), Limit: client.PageSize,
	})
	if err = client.CheckList(list, err); err != nil {
		return nil, time.Time{}, fmt.Errorf("list the Leases %s: %w", name, err)
	}
	return list.Items, clock.Now(time.Now()), nil
}

// at names the current holder of a Lease, in a sentence; "" if there is none.
func (c *Leaders) at(ctx context.Context, cl *client.Conn, namespace, name string) (string, error) {
	ctx, clock := client.WithClock(ctx)
	lease, err := cl.Lease(ctx, namespace, name)
	if client.IsGone(err, name) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read Lease %s/%s: %w", namespace, name, err)
	}
	now := time.Now()
	return c.Leases.HolderOf(lease, client.LongestLeadership, clock.Now(now), now), nil
}

// nodeCheckLeader is the leader Lease of medik8s' NodeHealthCheck operator.
const nodeCheckLeader = "e1f13584.medik8s.io"

// ControllerAlive reports whether the controller of checks of this kind is alive in the
// cluster. While it is, only that controller writes their status. The status of a
// kind without a controller is not written at all.
func (r *Reader) ControllerAlive(ctx context.Context, id policy.CheckID) (remediate.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	who, err := "", error(nil)
	switch client.GroupOf(id.APIVersion) {
	case client.MachineGroup:
		who, err = r.Leaders.at(ctx, r.Servers.Work.API(), machineAPINamespace, checkLeader)
	case client.ClusterGroup:
		who, err = r.Leaders.in(ctx, r.Servers.Manage.API(), clusterAPILeader)
	case client.Medik8sGroup:
		who, err = r.Leaders.in(ctx, r.Servers.Work.API(), nodeCheckLeader)
	default:
		return remediate.Yes, nil
	}
	if err != nil {
		return remediate.CannotTell, err
	}
	return remediate.AnswerOf(who != ""), nil
}
