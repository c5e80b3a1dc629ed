package view

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
)

// checkWith is an OpenShift check of the Machines labelled a=b.
func checkWith(apiVersion, kind string) *unstructured.Unstructured {
	return apiObject("MachineHealthCheck", "k", "1", map[string]any{
		"selector":            map[string]any{"matchLabels": map[string]any{"a": "b"}},
		"remediationTemplate": map[string]any{"apiVersion": apiVersion, "kind": kind, "name": "x", "namespace": "ns"},
	})
}

func TestOnlyKindsOfRemediatorsAreRequests(t *testing.T) {
	for template, want := range map[[2]string]string{
		{"self-node-remediation.medik8s.io/v1alpha1", "SelfNodeRemediationTemplate"}: "SelfNodeRemediation",
		{"infrastructure.cluster.x-k8s.io/v1beta1", "Metal3RemediationTemplate"}:     "Metal3Remediation",
		{"fenced.io/v1alpha1", "FencedRemediationTemplate"}:                          "FencedRemediation",
		{"example.com/v1", "NodeTemplate"}:                                           "Node", // of another group than ours
		{"machine.openshift.io/v1beta1", "MachineTemplate"}:                          "",
		{"cluster.x-k8s.io/v1beta2", "MachineTemplate"}:                              "",
		{"cluster.x-k8s.io/v1beta1", "ClusterTemplate"}:                              "",
		{"metal3.io/v1alpha1", "BareMetalHostTemplate"}:                              "",
		{"remediation.medik8s.io/v1alpha1", "NodeHealthCheckTemplate"}:               "",
		{"config.openshift.io/v1", "ClusterVersionTemplate"}:                         "",
		{"fenced.io/v1alpha1", "FencePolicyTemplate"}:                                "",
		{"v1", "NodeTemplate"}:                                                       "",
		{"apps/v1", "DeploymentTemplate"}:                                            "",
		{"coordination.k8s.io/v1", "LeaseTemplate"}:                                  "",
		{"example.com/v1", "Template"}:                                               "",
		{"example.com/v1", "Reboot"}:                                                 "",
		{"a/b/c", "RebootTemplate"}:                                                  "",
	} {
		kind, _ := client.RequestOf(policy.Template{APIVersion: template[0], Kind: template[1]})
		assert.Equal(t, want, kind.Kind, template)
	}
}

// Whoever may create a request cannot have a Node that is Ready power-cycled, unless the
// administrator allows it.
func TestReadyNodesAreUpToTheAdministrator(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		u := apiObject("FencedRemediation", "q", "1", map[string]any{"remediateReadyNodes": true})
		u.SetAPIVersion(policy.FencedAPI)
		assert.Equal(t, allowed, must.Do(Config{RemediateReadyNodes: allowed}.convertRequest(false)(u))(t).(*policy.Request).Power.ReadyNodes)
	}
}

// The author of a check must not take Machines out of the view by calling them
// requests.
func TestTemplateErasesNoMachine(t *testing.T) {
	c, l := offline(), policy.NewLedger(policy.Rules{})
	m, bad := apiObject("Machine", "m", "1", nil), checkWith(policy.OpenShiftMachineAPI, "MachineTemplate")
	apply := func() { l.Apply(time.Now(), c.Changes()...) }
	require.NoError(t, c.storeOf("Machine").Replace([]any{m.DeepCopy()}, "5"))
	require.NoError(t, c.storeOf("MachineHealthCheck").Add(bad))
	c.adjustRequests()
	apply()
	assert.NotNil(t, l.MachineIn(policy.OpenShiftMachineAPI, "ns", "m"))
	for _, st := range c.requests.watched() {
		assert.Contains(t, []schema.GroupKind{client.OwnRequests, client.Metal3Requests}, schema.GroupKind{Group: st.Group, Kind: st.Kind}, "the only kinds that are watched without a template")
	}
	k := l.Check(policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "k", Source: "cluster"})
	require.NotNil(t, k)
	assert.Contains(t, k.Invalid, "MachineTemplate of "+policy.OpenShiftMachineAPI)

	require.NoError(t, c.storeOf("MachineHealthCheck").Delete(bad))
	c.adjustRequests()
	apply()
	assert.NotNil(t, l.MachineIn(policy.OpenShiftMachineAPI, "ns", "m"), "after the check went")
}

// The message about a kind that is not read yet blames the limit only when the limit is why.
func TestLimitOfRequestKinds(t *testing.T) {
	c := offline()
	named := func(kind string) *policy.Check {
		return &policy.Check{Template: &policy.Template{APIVersion: "example.com/v1", Kind: kind + "Template"}}
	}
	for i := range maxRequestKinds {
		k := checkWith("example.com/v1", fmt.Sprintf("K%dTemplate", i))
		k.SetName(fmt.Sprint("k", i))
		require.NoError(t, c.storeOf("MachineHealthCheck").Add(k))
		if i == maxRequestKinds-2 {
			c.adjustRequests()
			assert.Contains(t, c.requests.gateCheck(named("New")).Invalid, "not yet", "one more is watched")
		}
	}
	c.adjustRequests()
	assert.Contains(t, c.requests.gateCheck(named("K3")).Invalid, "not yet", "it is watched")
	assert.Contains(t, c.requests.gateCheck(named("New")).Invalid, "checks name more than 16 kinds")
	c.cfg.Checks = []policy.Check{*named("New")} // a check of an administrator: no namespace can use up its place
	c.adjustRequests()
	assert.True(t, slices.ContainsFunc(c.requests.watched(), func(st *store) bool { return st.Kind == "New" }))
	assert.Equal(t, maxRequestKinds+3, len(c.requests.watched()), "with fenced's own and Metal3's")
}

// Whoever may write checks in one namespace does not take the places of the kinds that those of others name, whoever comes
// first: a check whose requests are not watched is Invalid. The namespaces of clusters[] come first. // I18
func TestKindsOfRequestsAreSharedByNamespace(t *testing.T) {
	c := offline()
	add := func(namespace, kind string) {
		k := checkWith("example.com/v1", kind+"Template")
		k.SetNamespace(namespace)
		k.SetName(strings.ToLower(kind))
		require.NoError(t, c.storeOf("MachineHealthCheck").Add(k))
	}
	invalid := func(kind string) string {
		return c.requests.gateCheck(&policy.Check{Template: &policy.Template{APIVersion: "example.com/v1", Kind: kind + "Template"}}).Invalid
	}
	for i := range 3 * maxRequestKinds {
		add("evil", fmt.Sprintf("A%d", i))
	}
	c.adjustRequests()
	assert.Len(t, c.requests.watched(), maxRequestKinds+2, "with fenced's own and Metal3's")
	add("prod", "Zed")
	c.adjustRequests()
	assert.Contains(t, invalid("Zed"), "not yet", "it is watched")
	assert.Contains(t, invalid("A9"), "checks name more than 16 kinds")
	assert.Len(t, c.requests.watched(), maxRequestKinds+2)
	for i := range maxRequestKinds {
		add(fmt.Sprint("more-", i), fmt.Sprintf("B%d", i))
	}
	c.adjustRequests()
	assert.Contains(t, invalid("Zed"), "checks name more than 16 kinds", "it is the last of 18 namespaces")
	c.cfg.Namespaces = []string{"prod"}
	c.adjustRequests()
	assert.Contains(t, invalid("Zed"), "not yet", "the administrator names it")
}

// An operator learns that fenced cannot see the requests that it is to carry out, nor those of Metal3, which no check
// has to name. That ages no view of the Nodes.
func TestUnreadRequestsOfOurOwnAreAProblem(t *testing.T) {
	for name, c := range map[string]struct {
		kind   schema.GroupKind
		metal3 bool
		change func(*store)
		want   string
	}{
		"just added":      {client.Metal3Requests, true, func(*store) {}, ""},
		"forbidden":       {client.Metal3Requests, true, func(s *store) { s.fail("you may not") }, "watch Metal3Remediation: you may not"},
		"no answer":       {client.Metal3Requests, true, func(s *store) { s.added = s.added.Add(-outageAfter) }, "watch Metal3Remediation: not read for 1m0s"},
		"not installed":   {client.Metal3Requests, true, func(s *store) { s.added = s.added.Add(-time.Hour); s.recordNotInstalled(time.Now()) }, ""},
		"Metal3 does":     {client.Metal3Requests, false, func(s *store) { s.fail("you may not") }, "watch Metal3Remediation: you may not"},
		"those of others": {schema.GroupKind{Group: "example.com", Kind: "Reboot"}, false, func(s *store) { s.added = s.added.Add(-time.Hour); s.fail("you may not") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := offline()
			k.cfg.Metal3Remediations = c.metal3
			require.NoError(t, k.storeOf("MachineHealthCheck").Add(checkWith(c.kind.Group+"/v1beta1", c.kind.Kind+"Template")))
			k.adjustRequests()
			at := time.Now()
			for _, s := range k.allStores() {
				if s.Kind != c.kind.Kind {
					s.recordNotInstalled(at)
				}
			}
			c.change(k.storeOf(c.kind.Kind))
			v := k.View()
			assert.Equal(t, c.want, v.Problem)
			assert.True(t, v.Synced)
			assert.Less(t, v.Age, time.Minute)
		})
	}
}

// A request that is read past the cache is where the watch shows it, too: one on a separate management
// API names a Node of that cluster.
func TestRequestsNowKnowTheirAPI(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"RebootList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"},"items":[{"kind":"Reboot","apiVersion":"example.com/v1",
			"metadata":{"namespace":"ns","name":"r","annotations":{"remediation.medik8s.io/node-name":"worker-0"}}}]}`)
	}))
	t.Cleanup(server.Close)
	file := k8stest.Kubeconfig(t, server.URL)
	c := must.Do(New(Config{Name: "test", Kubeconfig: file, Management: ManagementConfig{Kubeconfig: file}, FreshEvery: time.Second}, zap.NewNop()))(t)
	for s, apart := range map[*side]bool{c.work: false, c.manage: true} {
		st := &store{source: source{Resource: client.Resource{Kind: "Reboot", Group: "example.com", AnyVersion: true}, request: true}, gvr: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reboots"}}
		s.add(st)
		place := st.place("ns")
		assert.Equal(t, apart, place.OnManagementAPI, s.Name)
		assert.Equal(t, !apart, must.Do(isRequested(t, []Place{place}, remediate.Target{Node: "worker-0"}))(t), s.Name)
	}
}

// Only where a request may be for the target is it read. So many of one kind that a list of them has
// no end delay nothing elsewhere, and whoever is delayed is told in which namespace they are. // I22
func TestRequestsOfAnybodyDelayNobody(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		more, name := "", "other"
		switch {
		case strings.Contains(r.URL.Path, "/namespaces/many/"):
			more = "there is more"
		case strings.Contains(r.URL.Path, "/namespaces/admins/"):
			name = "w-2"
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"RebootList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7","continue":%q},"items":[{"kind":"Reboot","apiVersion":"example.com/v1",
			"metadata":{"namespace":"x","name":%q}}]}`, more, name)
	}))
	t.Cleanup(server.Close)
	ask := func(cfg Config, namespace string) (bool, error) {
		asked = nil
		cfg.Name, cfg.Kubeconfig, cfg.FreshEvery = "test", k8stest.Kubeconfig(t, server.URL), time.Second
		c := must.Do(New(cfg, zap.NewNop()))(t)
		st := &store{source: source{Resource: client.Resource{Kind: "Reboot", Group: "example.com", AnyVersion: true}, request: true}, gvr: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reboots"},
			synced: true, reached: 7, proven: time.Now()}
		c.work.add(st)
		c.requests.stores[requestKind{c.work, schema.GroupKind{Group: "example.com", Kind: "Reboot"}}] = st
		return isRequested(t, c.RequestPlaces(&policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: namespace, Name: "m"},
			&policy.Node{Name: "w-2", OpenShiftMachine: namespace + "/m"}), remediate.Target{Machine: "m", Namespace: namespace, Node: "w-2"})
	}
	found := must.Do(ask(Config{}, "prod"))(t)
	assert.False(t, found)
	assert.Equal(t, []string{"/apis/example.com/v1/namespaces/prod/reboots"}, asked)
	found = must.Do(ask(Config{RequestNamespaces: []string{"admins"}}, "prod"))(t)
	assert.True(t, found)
	_, err := ask(Config{}, "many")
	assert.ErrorContains(t, err, "there are more than 500")
}

// A look reads the requests where the templates of the policies are now, and no policy that a reload has removed keeps it from that. // I22
func TestRequestPlacesAreThoseOfTheReloadedPolicies(t *testing.T) {
	policyIn := func(namespace, kind string) []policy.Check {
		return []policy.Check{{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, SelectsNodes: true, Strategy: policy.CreateRequests, Source: "a.yaml:1",
			Template: &policy.Template{APIVersion: "example.com/v1", Kind: kind + "Template", Namespace: namespace, Name: "t"}}}
	}
	c := newCache(Config{Checks: append(policyIn("before", "Reboot"), policyIn("before", "Never")...)}, zap.NewNop())
	places := func() (all []string) {
		c.adjustRequests()
		for k, st := range c.requests.stores {
			if k.kind.Kind == "Reboot" {
				st.synced, st.proven = true, time.Now()
			}
		}
		c.adjustRequests()
		for _, p := range c.RequestPlaces(nil, &policy.Node{Name: "n"}) {
			if p.Kind.Kind == "Reboot" {
				all = append(all, p.Namespace)
			}
		}
		c.EachCheck(func(check *policy.Check) {
			if why := c.Unread(check); why != "" {
				all = append(all, why)
			}
		})
		return all
	}
	never := "the remediation requests of kind Never.example.com have not been read: not yet"
	assert.Equal(t, []string{"before", never}, places())
	c.ReplaceChecks(policyIn("now", "Reboot"))
	assert.Equal(t, []string{"now"}, places())
	assert.Len(t, c.requests.stores, 4, "Never is watched all the same, beside fenced's own and Metal3's")
}

// isRequested reads whether there is a request for a target in one of these places.
func isRequested(t *testing.T, places []Place, target remediate.Target) (found bool, err error) {
	t.Helper()
	for _, p := range places {
		list, err := p.List(t.Context())
		if err != nil {
			return false, err
		}
		for i := range list {
			q := must.Do(manifest.Request(list[i].Object))(t)
			q.OnManagementAPI = p.OnManagementAPI
			found = found || isFor(&q, target)
		}
	}
	return found, nil
}

func isFor(q *policy.Request, t remediate.Target) bool {
	return q.IsFor(policy.TargetNames{Namespace: t.Namespace, Machine: t.Machine, MachineUID: t.MachineUID, Node: t.Node})
}

// infraMachines are no requests. Every Machine of Metal3 owns one, and a check can name the kind's template.
var infraMachines = schema.GroupVersionResource{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Resource: "metal3machines"}

// checkOfInfraMachines is a check in a namespace, of medik8s without one, that says they are requests.
func checkOfInfraMachines(namespace string) *unstructured.Unstructured {
	k := checkWith(infraMachines.GroupVersion().String(), "Metal3MachineTemplate")
	k.SetNamespace(namespace)
	if namespace == "" {
		k.SetAPIVersion(policy.Medik8sAPI)
		k.SetKind(policy.NodeHealthCheckKind)
	}
	return k
}

func infraMachine(namespace, name string) *unstructured.Unstructured {
	u := apiObject("Metal3Machine", name, "1", nil)
	u.SetAPIVersion(infraMachines.GroupVersion().String())
	u.SetNamespace(namespace)
	return u
}

// What only the checks of a namespace call a request is one in that namespace, wherever fenced may read the kind.
// Whoever names it, and no longer names it, changes what is told of the others. // I2
func TestKindOfANamespacesChecksIsToldOfThatNamespace(t *testing.T) {
	c := offline()
	checks, clusterWide := c.storeOf(policy.MachineHealthCheckKind), c.storeOf(policy.NodeHealthCheckKind)
	told := func() (list []string) {
		c.adjustRequests()
		for id := range k8stest.Seen(c) {
			if id.Kind == "Metal3Machine" {
				list = append(list, id.Namespace+"/"+id.Name)
			}
		}
		return list
	}
	require.NoError(t, checks.Add(checkOfInfraMachines("tenant")))
	require.Empty(t, told())
	require.NoError(t, c.storeOf("Metal3Machine").Replace([]any{infraMachine("tenant", "m"), infraMachine("prod", "m"), infraMachine("other", "m")}, "5"))
	assert.ElementsMatch(t, []string{"tenant/m"}, told())
	bad := infraMachine("prod", "bad")
	bad.SetResourceVersion("not a number")
	require.NoError(t, c.storeOf("Metal3Machine").Add(bad))
	assert.ElementsMatch(t, []string{"tenant/m"}, told(), "nor does one raise doubt that cannot be read")
	require.NoError(t, c.storeOf("Metal3Machine").Delete(bad))

	require.NoError(t, checks.Add(checkOfInfraMachines("prod")))
	assert.ElementsMatch(t, []string{"tenant/m", "prod/m"}, told())
	require.NoError(t, clusterWide.Add(checkOfInfraMachines("")))
	assert.ElementsMatch(t, []string{"tenant/m", "prod/m", "other/m"}, told(), "an administrator names the kind")
	require.NoError(t, clusterWide.Delete(checkOfInfraMachines("")))
	require.NoError(t, checks.Delete(checkOfInfraMachines("prod")))
	assert.ElementsMatch(t, []string{"tenant/m"}, told())
	require.NoError(t, checks.Delete(checkOfInfraMachines("tenant")))
	assert.Empty(t, told())
}

// A namespace is one of one API server: who names a kind in one makes none a request in its namesake on the other. // I2
func TestKindOfANamespacesChecksIsOfOneAPI(t *testing.T) {
	c := newCache(Config{Kubeconfig: "work", Management: ManagementConfig{Kubeconfig: "manage"}}, zap.NewNop())
	put := func(s *side, group string, u *unstructured.Unstructured) {
		at := slices.IndexFunc(s.watched(), func(st *store) bool { return st.Kind == u.GetKind() && st.Group == group })
		require.NoError(t, s.watched()[at].Add(u))
	}
	ofCluster := checkOfInfraMachines("managed")
	ofCluster.SetAPIVersion(policy.ClusterAPIV1Beta1)
	require.NoError(t, unstructured.SetNestedField(ofCluster.Object, "blue", "spec", "clusterName"))
	put(c.work, client.MachineGroup, checkOfInfraMachines("tenant"))
	put(c.manage, client.ClusterGroup, ofCluster)
	c.adjustRequests()
	for _, namespace := range []string{"tenant", "managed"} {
		put(c.work, infraMachines.Group, infraMachine(namespace, "m"))
		put(c.manage, infraMachines.Group, infraMachine(namespace, "m"))
	}
	var told []string
	for id := range k8stest.Seen(c) {
		if id.Kind == "Metal3Machine" {
			told = append(told, fmt.Sprintf("%s %t", id.Namespace, id.OnManagementAPI))
		}
	}
	assert.ElementsMatch(t, []string{"tenant false", "managed true"}, told)
}

// A look, too, reads requests of such a kind only where its checks are, or for the Machines there: the controller of
// medik8s makes those of a MachineHealthCheck in the namespace of the template. What is known of the checks counts at once. // I2 I22
func TestKindOfANamespacesChecksContestsOnlyThere(t *testing.T) {
	for name, tc := range map[string]struct {
		checks, late []string
		target       string
		asked        []string
		contested    bool
	}{
		"the Machines of others":            {checks: []string{"tenant"}, target: "prod"},
		"its own Machines":                  {checks: []string{"tenant"}, target: "tenant", asked: []string{"admins", "tenant"}, contested: true},
		"those of another check":            {checks: []string{"tenant", "prod"}, target: "prod", asked: []string{"admins", "prod"}, contested: true},
		"those of an administrator":         {checks: []string{"tenant", ""}, target: "prod", asked: []string{"admins", "ns", "prod"}, contested: true},
		"an administrator's that just came": {checks: []string{"tenant"}, late: []string{""}, target: "prod", asked: []string{"admins", "ns", "prod"}, contested: true},
		"a namespace that counts for all":   {checks: []string{"tenant", "admins"}, target: "prod", asked: []string{"admins"}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			c := served(t, func(w http.ResponseWriter, r *http.Request) {
				_, in, listed := strings.Cut(r.URL.Path, "/namespaces/")
				if strings.HasSuffix(in, "/metal3remediations") { // they are not installed
					k8stest.Status(w, http.StatusNotFound, "NotFound", "")
					return
				}
				if !listed { // discovery
					w.Header().Set("Content-Type", "application/json")
					_, _ = fmt.Fprint(w, `{"kind":"APIGroup","apiVersion":"v1","name":"infrastructure.cluster.x-k8s.io","versions":[]}`)
					return
				}
				namespace, _, _ := strings.Cut(in, "/")
				asked = append(asked, namespace)
				owner := "u-" + namespace // of the Machine there
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"kind":"Metal3MachineList","apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[
					{"kind":"Metal3Machine","apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","metadata":{"namespace":%q,"name":"x","ownerReferences":[{"kind":"Machine","name":"m","uid":%q}]}}]}`, namespace, owner)
			})
			c.cfg.RequestNamespaces = []string{"admins"}
			add := func(namespaces []string) {
				for _, namespace := range namespaces {
					k := checkOfInfraMachines(namespace)
					require.NoError(t, c.storeOf(k.GetKind()).Add(k))
				}
			}
			add(tc.checks)
			c.adjustRequests()
			st := c.storeOf("Metal3Machine")
			st.gvr, st.synced, st.reached, st.proven = infraMachines, true, 7, time.Now()
			c.adjustRequests()
			add(tc.late)
			found := must.Do(isRequested(t, c.RequestPlaces(&policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: tc.target, Name: "m"},
				&policy.Node{Name: "w-2", OpenShiftMachine: tc.target + "/m"}), remediate.Target{Machine: "m", MachineUID: "u-" + tc.target, Namespace: tc.target, Node: "w-2"}))(t)
			assert.Equal(t, tc.contested, found)
			assert.Equal(t, tc.asked, asked)
		})
	}
}

// A check tells the reason of now, also when that comes after the check was told.
func TestReasonOfUnreadRequestsIsToldWhenItChanges(t *testing.T) {
	c := offline()
	require.NoError(t, c.storeOf("MachineHealthCheck").Add(checkWith("example.com/v1", "RebootTemplate")))
	c.adjustRequests()
	for len(c.requests.changed) > 0 {
		<-c.requests.changed
	}
	reboots := c.storeOf("Reboot")
	for _, why := range []string{"you may not", "you still may not"} {
		reboots.fail(why)
		select {
		case <-c.requests.changed:
		default:
			t.Fatal("nobody is woken")
		}
		assert.True(t, c.adjustRequests(), "the checks are told again")
		assert.False(t, c.adjustRequests(), "once")
		reboots.fail(why)
		assert.Empty(t, c.requests.changed, "nothing changed")
	}
}
