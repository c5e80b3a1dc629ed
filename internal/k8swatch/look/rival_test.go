package look

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
				l.look.FreshNode = &policy.Node{Name: "n", Labels: set}
				l.look.FreshMachine = &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m", Labels: set}
				who := must.Do(l.foreignRequest(t.Context()))(t)
				return who
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
	l.look.FreshNode = &policy.Node{Name: "n", Labels: labels.Set{"a": "b"}}
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
		who := must.Do(l.mirrorRival(t.Context()))(t)
		return who
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
