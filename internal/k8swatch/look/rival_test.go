package look

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
)

// checkOf is a check of the Machines in ns that are labelled a=b.
func checkOf(apiVersion, kind string) policy.Check {
	return policy.Check{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "k", Strategy: policy.CreateRequests,
		Selector: labels.SelectorFromSet(labels.Set{"a": "b"}), Template: &policy.Template{APIVersion: apiVersion, Kind: kind, Namespace: "ns", Name: "x"}}
}

// A check whose selector cannot be read concerns the Machines of its namespace, and nobody else. // I22
func TestBrokenCheckOfANamespaceContestsOnlyThere(t *testing.T) {
	broken := checkOf("apps/v1", "DeploymentTemplate")
	broken.Selector = nil
	r := beside(t, broken)
	for namespace, contested := range map[string]bool{"ns": true, "prod": false} {
		l := &looker{r: r, run: remediate.Run{Target: remediate.Target{Machine: "m", Namespace: namespace}}}
		l.look.FreshMachine = &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: namespace, Name: "m"}
		assert.Equal(t, contested, must.Do(l.foreignRequest(t.Context()))(t) != "", namespace)
	}
}

// Whether somebody is asked to repair the target cannot be known then.
func TestTargetOfAStrangeTemplateIsContested(t *testing.T) { // I22
	l := &looker{r: beside(t, checkOf("apps/v1", "DeploymentTemplate")), run: remediate.Run{Target: remediate.Target{Machine: "m", Namespace: "ns"}}}
	l.look.FreshMachine = &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", Labels: labels.Set{"a": "b"}}
	who := must.Do(l.foreignRequest(t.Context()))(t)
	assert.Contains(t, who, "MachineHealthCheck ns/k covers it: its template is a DeploymentTemplate of apps/v1")
	l.look.FreshMachine.Labels = nil
	who = must.Do(l.foreignRequest(t.Context()))(t)
	assert.Empty(t, who, "the check covers other Machines")
}

// Until the requests of a kind were listed, nobody acts on a target of a check that names the kind: not
// even of a check from a file, and whoever makes its requests.
func TestTargetOfUnreadRequestsIsContested(t *testing.T) { // I22
	for name, machines := range map[string]bool{"Nodes": false, "Machines": true} {
		t.Run(name, func(t *testing.T) {
			c := beside(t, policy.Check{
				Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p", Strategy: policy.CreateRequests, SelectsNodes: !machines,
				Selector: labels.SelectorFromSet(labels.Set{"a": "b"}), Template: &policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "t"},
			})
			ask := func(set labels.Set) string {
				l := &looker{r: c, run: remediate.Run{Target: remediate.Target{Node: "n", Machine: "m", Namespace: "ns"}}}
				l.look.FreshNode = &policy.Node{Name: "n", Labels: policy.LabelsOf(set)}
				l.look.FreshMachine = &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", Labels: set}
				return must.Do(l.foreignRequest(t.Context()))(t)
			}
			covered := labels.Set{"a": "b"}
			assert.Contains(t, ask(covered), "FencePolicy p covers it: the remediation requests of kind Reboot.example.com have not been read: not yet")
			assert.Empty(t, ask(nil), "the check covers other targets")
		})
	}
}

// The requests that fenced itself carries out ask nobody else: a target of a check that makes only such
// is free for a run before they were listed.
func TestTargetOfTheOwnTemplateIsNotContested(t *testing.T) {
	own := policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "t"}
	other := policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "t"}
	for name, c := range map[string]struct {
		check policy.Check
		who   string
	}{
		"one template": {policy.Check{Template: &own}, ""},
		"beside another's": {policy.Check{Escalation: []policy.Escalation{{Template: other}, {Template: own}}},
			"the remediation requests of kind Reboot.example.com have not been read"},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.check
			p.Kind, p.APIVersion, p.Name, p.Strategy, p.SelectsNodes, p.Selector = policy.FencePolicyKind, policy.FencedAPI, "p", policy.CreateRequests, true, labels.Everything()
			l := &looker{r: beside(t, p), run: remediate.Run{Target: remediate.Target{Node: "n"}}}
			l.look.FreshNode = &policy.Node{Name: "n"}
			who := must.Do(l.foreignRequest(t.Context()))(t)
			if c.who == "" {
				assert.Empty(t, who)
			} else {
				assert.Contains(t, who, c.who)
			}
		})
	}
}

// The controller of a check acts on it also if only fenced finds it Invalid, so its requests that were
// never listed contest its targets.
func TestUnreadRequestsOfAnInvalidCheckContest(t *testing.T) { // I22
	check := checkOf("example.com/v1", "RebootTemplate")
	check.Kind, check.APIVersion, check.Namespace, check.Name, check.SelectsNodes = policy.NodeHealthCheckKind, policy.Medik8sAPI, "", "nhc", true
	check.Invalid = "healthyDelay cannot be read"
	l := &looker{r: beside(t, check), run: remediate.Run{Target: remediate.Target{Node: "n"}}}
	l.look.FreshNode = &policy.Node{Name: "n", Labels: policy.LabelsOf(labels.Set{"a": "b"})}
	who := must.Do(l.foreignRequest(t.Context()))(t)
	assert.Contains(t, who, "NodeHealthCheck nhc covers it: the remediation requests of kind Reboot.example.com have not been read")
	l.look.FreshNode.Labels = nil
	who = must.Do(l.foreignRequest(t.Context()))(t)
	assert.Empty(t, who, "the check covers other Nodes")
}

// A request that another Machine owns, or of another namespace, is not for a Machine of the same name.
func TestRequestOfAnotherMachineOfThatName(t *testing.T) {
	target := remediate.Target{MachineAPI: policy.ClusterAPIV1Beta2, Namespace: "team-a", Machine: "worker-0", MachineUID: "a", Node: "worker-0"}
	theirs := policy.Request{Kind: "Metal3Remediation", Namespace: "team-b", Name: "worker-0", OnManagementAPI: true,
		Owners: []policy.Owner{{Kind: "Machine", Name: "worker-0", UID: "b"}}}
	assert.False(t, isFor(&theirs, target))
	theirs.NodeName, theirs.Owners = "worker-0", nil // a Node of another workload cluster
	assert.False(t, isFor(&theirs, target))
}

func isFor(q *policy.Request, t remediate.Target) bool {
	return q.IsFor(policy.TargetNames{Namespace: t.Namespace, Machine: t.Machine, MachineUID: t.MachineUID, Node: t.Node})
}

// besideRequests is a view with one place of requests.
type besideRequests struct {
	*view.Cache
	place view.Place
}

func (b besideRequests) RequestPlaces(*policy.Machine, *policy.Node) []view.Place {
	return []view.Place{b.place}
}

// Another's request for the target contests it; one that cannot be listed is no absence. What fenced carries out itself does not.
func TestRequestOfAnotherRemediatorContests(t *testing.T) { // I22
	reboot := schema.GroupKind{Group: "example.com", Kind: "Reboot"}
	for name, c := range map[string]struct {
		kind  schema.GroupKind
		of    string
		apart bool
		err   error
		want  string
	}{
		"for the target":                   {kind: reboot, of: "w-2", want: "asks another remediator"},
		"for another":                      {kind: reboot, of: "w-3"},
		"for a Node of another cluster":    {kind: reboot, of: "w-2", apart: true},
		"of fenced's own kind":             {kind: client.OwnRequests, of: "w-2"},
		"so many that the list has no end": {kind: reboot, err: errors.New("there are more than 500")},
	} {
		t.Run(name, func(t *testing.T) {
			r := beside(t)
			r.View = besideRequests{r.View.(*view.Cache), view.Place{Kind: c.kind, Namespace: "admins", OnManagementAPI: c.apart, Key: "k",
				List: func(context.Context) ([]unstructured.Unstructured, error) {
					return []unstructured.Unstructured{{Object: map[string]any{"kind": c.kind.Kind, "apiVersion": c.kind.Group + "/v1",
						"metadata": map[string]any{"namespace": "admins", "name": "r", "annotations": map[string]any{"remediation.medik8s.io/node-name": c.of}}}}}, c.err
				}}}
			l := &looker{r: r, run: remediate.Run{Target: remediate.Target{Machine: "m", Namespace: "prod", Node: "w-2"}}}
			who, err := l.foreignRequest(t.Context())
			if c.err != nil {
				assert.ErrorContains(t, err, "list the requests of kind Reboot in namespace admins: there are more than 500")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want != "", who != "", who)
			assert.Contains(t, who, c.want)
		})
	}
}

// CAPM3 carries out each Metal3Remediation that a Machine owns, whoever made it. So one contests its Machine although no
// check names the kind, in a namespace that may name the Machine. Where the kind is installed and cannot be read, nobody
// knows. // I22
func TestMetal3RemediationThatNoCheckNamesContests(t *testing.T) {
	for name, c := range map[string]struct {
		namespace string // of the Machine
		serve     string // what the API server does
		want      string
		fails     string
	}{
		"for the Machine":              {"ns", "list", "Metal3Remediation ns/m asks another remediator", ""},
		"in a namespace of others":     {"prod", "list", "", ""},
		"the kind is not installed":    {"ns", "", "", ""},
		"fenced may not read the kind": {"ns", "forbid", "", "list the requests of kind Metal3Remediation in namespace ns"},
	} {
		t.Run(name, func(t *testing.T) {
			r := served(t, func(w http.ResponseWriter, r *http.Request) {
				const group = "infrastructure.cluster.x-k8s.io"
				answer := func(text string) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = fmt.Fprint(w, text)
				}
				switch list := strings.HasSuffix(r.URL.Path, "/metal3remediations"); {
				case r.URL.Path == "/apis":
					answer(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
				case c.serve != "" && r.URL.Path == "/apis/"+group:
					answer(`{"kind":"APIGroup","apiVersion":"v1","name":"` + group + `","versions":[{"groupVersion":"` + group + `/v1beta2","version":"v1beta2"}]}`)
				case c.serve != "" && r.URL.Path == "/apis/"+group+"/v1beta2":
					answer(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"` + group + `/v1beta2","resources":[{"name":"metal3remediations","kind":"Metal3Remediation","namespaced":true}]}`)
				case list && c.serve == "forbid":
					k8stest.Status(w, http.StatusForbidden, "Forbidden", "metal3remediations")
				case c.serve == "":
					k8stest.Status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
				case list && strings.Contains(r.URL.Path, "/namespaces/ns/"):
					answer(`{"kind":"Metal3RemediationList","apiVersion":"` + group + `/v1beta2","metadata":{"resourceVersion":"7"},"items":[{"kind":"Metal3Remediation","apiVersion":"` + group + `/v1beta2",
						"metadata":{"namespace":"ns","name":"m","uid":"q","resourceVersion":"6","ownerReferences":[{"apiVersion":"` + policy.ClusterAPIV1Beta2 + `","kind":"Machine","name":"m","uid":"u"}]}}]}`)
				case list && strings.Contains(r.URL.Path, "/namespaces/"):
					answer(`{"kind":"Metal3RemediationList","apiVersion":"` + group + `/v1beta2","metadata":{"resourceVersion":"7"},"items":[]}`)
				default:
					k8stest.Status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
				}
			})
			cache := r.View.(*view.Cache)
			ctx, cancel := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { cache.Run(ctx) })
			defer run.Wait()
			defer cancel()
			l := &looker{r: r, run: remediate.Run{Target: remediate.Target{MachineAPI: policy.ClusterAPIV1Beta2, Namespace: c.namespace, Machine: "m", MachineUID: "u", Node: "n"}}}
			l.look.FreshMachine = &policy.Machine{APIVersion: policy.ClusterAPIV1Beta2, Namespace: c.namespace, Name: "m", UID: "u"}
			k8stest.Until(t, "the kind is watched", func() bool { return len(cache.RequestPlaces(l.look.FreshMachine, nil)) > 0 })
			who, err := l.foreignRequest(t.Context())
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want != "", who != "", who)
			assert.Contains(t, who, c.want)
		})
	}
}

// OpenShift's controller would delete the copy that a Machine of the Cluster API has in its own API.
func TestCopyOfAMachineHasARival(t *testing.T) { // I22
	paused := atomic.Bool{}
	r := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/machines/m"):
			_, _ = fmt.Fprint(w, `{"kind":"Machine","apiVersion":"machine.openshift.io/v1beta1","metadata":{"name":"m","namespace":"ns","uid":"u","resourceVersion":"5","labels":{"only":"m"}}}`)
		case strings.HasSuffix(r.URL.Path, "/machinehealthchecks"):
			annotations := ""
			if paused.Load() {
				annotations = `"cluster.x-k8s.io/paused":""`
			}
			_, _ = fmt.Fprintf(w, `{"kind":"MachineHealthCheckList","apiVersion":"machine.openshift.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[
				{"kind":"MachineHealthCheck","apiVersion":"machine.openshift.io/v1beta1","metadata":{"name":"k","namespace":"ns","uid":"k","resourceVersion":"6","annotations":{%s}},
				"spec":{"selector":{"matchLabels":{"only":"m"}},"unhealthyConditions":[{"type":"Ready","status":"False","timeout":"300s"}],"maxUnhealthy":"40%%"}}]}`, annotations)
		case strings.HasSuffix(r.URL.Path, "/"+checkLeader):
			_, _ = fmt.Fprint(w, leaseNow(checkLeader, "pod-y"))
		default:
			k8stest.Status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
		}
	})
	copied := func(openShift string) string {
		l := &looker{r: r, work: r.Servers.Work.API(), manage: r.Servers.Manage.API()}
		l.look.FreshNode = &policy.Node{Name: "n", OpenShiftMachine: openShift}
		return must.Do(l.mirrorRival(t.Context()))(t)
	}
	assert.Contains(t, copied("ns/m"), "pod-y", "the deletion of the copy would be one of the Machine")
	assert.Empty(t, copied("ns/none"))
	assert.Empty(t, copied(""))
	paused.Store(true)
	assert.Empty(t, copied("ns/m"), "paused, it does nothing")
}

// leaseNow is a leader Lease that was renewed just now.
func leaseNow(name, holder string) string {
	return fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":%q,"namespace":"openshift-machine-api","uid":"u","resourceVersion":"5"},"spec":{"holderIdentity":%q,"leaseDurationSeconds":120,"renewTime":%q}}`,
		name, holder, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
}

// Which controllers of OpenShift's Machine API would act on a Machine. A row that was
// refused before fenced asked about the very target says in safe why no other
// remediator acts on the target, although one is alive.
func TestRivalsOfAMachine(t *testing.T) { // I22
	deletes := policy.Check{Strategy: policy.DeleteMachines}
	cycles := policy.Check{Strategy: policy.PowerCycleHosts}
	ours := policy.Check{Strategy: policy.CreateRequests, Template: &policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate"}}
	theirs := policy.Check{Strategy: policy.CreateRequests, Template: &policy.Template{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1"}}
	plain := policy.Machine{Phase: "Running"}
	requested := policy.Machine{Phase: "Running", ExternalRemediationRequested: true}
	deleting := policy.Machine{Phase: "Deleting", Deleting: true}
	failed := policy.Machine{Phase: "Failed"}
	both, controller, actuator := []string{checkLeader, powerCycleLeader}, []string{checkLeader}, []string{powerCycleLeader}
	of := func(c ...policy.Check) []policy.Check { return c }

	for _, c := range []struct {
		name    string
		machine *policy.Machine
		checks  []policy.Check // that cover the Machine and are not paused
		alive   []string
		want    []string
		safe    string
	}{
		// Refused before, allowed now.
		{"a stock cluster, no check covers the Machine", &plain, nil, both, nil,
			"the actuator acts on a Machine with the annotation or one that is deleted; without a check the controller writes no annotation and deletes nothing"},
		{"a power cycle, a check with the bare-metal strategy whose controller is not alive", &plain, of(cycles), actuator, nil,
			"nobody writes the annotation that the actuator waits for; the Lease of the controller is read again before each command"},
		{"a check that asks fenced, on a stock cluster", &plain, of(ours), both, nil,
			"the controller only creates requests of a kind that fenced carries out; the actuator is not asked"},
		{"a Machine without a Node, no check covers it", &policy.Machine{Phase: "Provisioned"}, nil, both, nil,
			"the actuator switches a host only while it is provisioned, and fenced refuses a host that is not provisioned"},
		{"a Machine that failed, no check covers it", &failed, nil, both, nil, "the controller deletes only what a check covers"},
		{"a check that deletes, whose controller is not alive", &plain, of(deletes), actuator, nil,
			"nobody deletes the Machine, so the actuator does not deprovision its host"},
		// Allowed before and now.
		{"nobody is alive", &requested, of(cycles, deletes, theirs), nil, nil, "nobody acts"},
		{"the bare-metal strategy, and no actuator", &plain, of(cycles), controller, nil, "the controller only annotates the Machine, and nobody follows"},
		{"annotated, and no actuator", &requested, of(cycles), controller, nil, "nobody follows the annotation; fenced removes it when it is done"},
		{"the Machine is gone", nil, of(deletes), both, nil, "there is nothing to act on"},
		// Refused.
		{"annotated, whoever did it", &requested, nil, both, actuator, ""},
		{"annotated, its check is paused by now", &requested, nil, actuator, actuator, ""},
		{"deprovisioned by the actuator", &deleting, nil, actuator, actuator, ""},
		{"the annotation may come at any moment", &plain, of(cycles), both, actuator, ""},
		{"a check deletes", &plain, of(deletes), both, controller, ""},
		{"a check asks another remediator", &plain, of(theirs), both, controller, ""},
		{"one check asks fenced, another deletes", &plain, of(ours, deletes), both, controller, ""},
		{"one check deletes, another power-cycles", &plain, of(cycles, deletes), both, both, ""},
		{"a Failed Machine is deleted even with the bare-metal strategy", &failed, of(cycles), both, controller, ""},
		{"a Failed Machine that is annotated", &requested, of(cycles), both, actuator, ""},
	} {
		who, err := machineRivals(c.machine, c.checks, func(name string) (string, error) {
			if slices.Contains(c.alive, name) {
				return name, nil
			}
			return "", nil
		})
		require.NoError(t, err, c.name)
		assert.Equal(t, strings.Join(c.want, "; "), who, c.name)
		assert.Equal(t, c.want == nil, c.safe != "", "%s: what is allowed says why nobody else acts", c.name)
	}
}

// A leader Lease that cannot be read, and whose holder might act, is no permission.
func TestUnreadLeaderIsNoAbsence(t *testing.T) { // I22
	cycles, deletes := policy.Check{Strategy: policy.PowerCycleHosts}, policy.Check{Strategy: policy.DeleteMachines}
	broken := errors.New("no answer")
	for name, c := range map[string]struct {
		machine policy.Machine
		checks  []policy.Check
		unread  string
		fails   bool
	}{
		"the controller of a check that deletes":        {policy.Machine{}, []policy.Check{deletes}, checkLeader, true},
		"the controller of a check that annotates":      {policy.Machine{}, []policy.Check{cycles}, checkLeader, true},
		"the actuator, which may be asked":              {policy.Machine{}, []policy.Check{cycles}, powerCycleLeader, true},
		"the actuator of an annotated Machine":          {policy.Machine{ExternalRemediationRequested: true}, nil, powerCycleLeader, true},
		"the actuator of a Machine that is deleted":     {policy.Machine{Deleting: true}, nil, powerCycleLeader, true},
		"the actuator, whose business the host is not":  {policy.Machine{}, nil, powerCycleLeader, false},
		"the controller, whose checks do not cover it":  {policy.Machine{}, nil, checkLeader, false},
		"the actuator, where a check deletes a Machine": {policy.Machine{}, []policy.Check{deletes}, powerCycleLeader, false},
	} {
		_, err := machineRivals(&c.machine, c.checks, func(name string) (string, error) {
			if name == c.unread {
				return "", broken
			}
			return name, nil
		})
		assert.Equal(t, c.fails, err != nil, name)
	}
}

func TestUnreadMachineHidesNoCheck(t *testing.T) {
	l := &looker{r: beside(t), run: remediate.Run{Target: remediate.Target{Machine: "m", Namespace: "ns"}}}
	_, err := l.leader(t.Context())
	require.ErrorContains(t, err, "could not be read")
}

// Anybody may have a Lease of a manager's name in a namespace of their own. It counts where the manager is installed, or where
// the administrator says that it is, and a refusal names it. // I22
func TestLeaderCountsOnlyWhereItIsInstalled(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	leases := map[string]*coordinationv1.Lease{}
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/leases") {
			k8stest.Status(w, http.StatusNotFound, "NotFound", "x")
			return
		}
		_, namespace, _ := strings.Cut(strings.TrimSuffix(r.URL.Path, "/leases"), "/namespaces/")
		list := coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}}
		list.ResourceVersion = "9"
		mu.Lock()
		for ns, l := range leases {
			if namespace == "" || namespace == ns {
				list.Items = append(list.Items, *l)
			}
		}
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(list))
	})
	alive := func() remediate.Answer {
		return must.Do(c.ControllerAlive(t.Context(), policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.ClusterAPIV1Beta2}))(t)
	}
	put := func(namespace string) {
		holder, now, seconds := "nobody", metav1.NowMicro(), int32(1<<31-1)
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterAPILeader, UID: "u", ResourceVersion: "1"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &seconds}}
		mu.Lock()
		defer mu.Unlock()
		leases[namespace] = l
	}
	put("tenant")
	assert.Equal(t, remediate.No, alive(), "a tenant's Lease")
	assert.Equal(t, []string{"tenant"}, must.Do(c.Leaders.elsewhere(t.Context(), c.Servers.Manage.API(), clusterAPILeader))(t), "which is told")
	c.Leaders.Namespaces = []string{"tenant"}
	assert.Equal(t, remediate.Yes, alive(), "the administrator names it")
	c.Leaders.Namespaces = nil
	put("capi-system")
	who := must.Do(c.Leaders.in(t.Context(), c.Servers.Manage.API(), clusterAPILeader))(t)
	assert.Equal(t, "nobody holds the Lease capi-system/"+clusterAPILeader, who)
}
