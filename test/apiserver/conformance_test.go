package apiserver

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func TestMain(m *testing.M) { os.Exit(rigtest.Main(m)) }

// T is what a row asserts with.
type T interface {
	require.TestingT
	Context() context.Context
}

// row is one behaviour on which fenced or a test relies.
type row struct {
	name string
	run  func(t T, a *api)
}

// rows are the conformance suite.
func rows() []row {
	var all []row
	for _, some := range [][]row{readRows, writeRows, deleteRows, watchRows, customRows, accessRows} {
		all = append(all, some...)
	}
	return all
}

// api is one API server, the stand-in or the real one, as its rows see it.
type api struct {
	config   func(user string, groups ...string) *rest.Config
	grant    func(t T, user, namespace string, rule rbacv1.PolicyRule)
	typed    kubernetes.Interface // protobuf, as an administrator
	dynamic  dynamic.Interface    // JSON, as an administrator
	accounts bool                 // pods need service accounts
}

func newAPI(config func(user string, groups ...string) *rest.Config, t require.TestingT) *api {
	a := &api{config: config}
	admin := rest.CopyConfig(config("conformance", AdminGroup))
	admin.WarningHandler = rest.NoWarnings{}
	a.dynamic = must.Do(dynamic.NewForConfig(admin))(t)
	admin.ContentType = kruntime.ContentTypeProtobuf
	a.typed = must.Do(kubernetes.NewForConfig(admin))(t)
	return a
}

// TestConformance: the stand-in behaves as its rows say.
func TestConformance(t *testing.T) {
	a := standIn(t, nil)
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, a)
		})
	}
}

// TestConformanceOfKubernetes: the real API server behaves as the same rows say.
func TestConformanceOfKubernetes(t *testing.T) {
	c := rigtest.Own(t, rig.Options{Bare: true, NoManager: true})
	a := newAPI(func(user string, groups ...string) *rest.Config { return must.Do(c.RESTConfig(user, groups...))(t) }, t)
	a.accounts = true
	a.grant = func(t T, user, namespace string, rule rbacv1.PolicyRule) { grantByRBAC(t, a, user, namespace, rule) }
	define(t, a)
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, a)
		})
	}
}

// standIn starts a stand-in with the kind of the rows, and with what a test breaks on purpose.
func standIn(t *testing.T, broken func(*Server)) *api {
	t.Helper()
	s := must.Do(Start(Options{}))(t)
	t.Cleanup(s.Close)
	var mu sync.Mutex
	rights := []Right{}
	s.SetRights(rights)
	a := newAPI(s.RESTConfig, t)
	a.grant = func(_ T, user, namespace string, rule rbacv1.PolicyRule) {
		mu.Lock()
		defer mu.Unlock()
		rights = append(rights, Right{user, namespace, rule})
		s.SetRights(rights)
	}
	define(t, a)
	if broken != nil {
		broken(s)
	}
	return a
}

// grantByRBAC gives a user a right, and waits until the authorizer knows it.
func grantByRBAC(t T, a *api, user, namespace string, rule rbacv1.PolicyRule) {
	about, to := metav1.ObjectMeta{Name: name("right")}, []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	rbac := a.typed.RbacV1()
	must.Do(rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: about, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{}))(t)
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: about.Name}
	if namespace == "" {
		must.Do(rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: about, RoleRef: role, Subjects: to}, metav1.CreateOptions{}))(t)
	} else {
		must.Do(rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: about, RoleRef: role, Subjects: to}, metav1.CreateOptions{}))(t)
	}
	until(t, "the right", func() bool {
		resource, sub, _ := strings.Cut(rule.Resources[0], "/")
		return allowed(t, a, user, namespace, rule.Verbs[0], rule.APIGroups[0], resource, sub)
	})
}

var names atomic.Int64

// name returns a name that no other call gets.
func name(base string) string { return fmt.Sprintf("%s-%d", base, names.Add(1)) }

// until waits for something that a real API server does a moment later.
func until(t T, what string, ok func() bool) {
	require.Eventually(t, ok, time.Minute, 20*time.Millisecond, what)
}

// The custom resource of the rows, at two versions.
var (
	widgets   = schema.GroupVersionResource{Group: "conformance.fenced.io", Version: "v1", Resource: "widgets"}
	widgetsV2 = widgets.GroupResource().WithVersion("v2")
	crds      = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

const widgetSchema = `{openAPIV3Schema: {type: object, required: [spec], properties: {
  spec: {type: object, required: [size], properties: {
    size: {type: integer, minimum: 1}, mode: {type: string, enum: [fast, slow]}, retries: {type: integer, default: 3},
    port: {x-kubernetes-int-or-string: true}, free: {type: object, x-kubernetes-preserve-unknown-fields: true},
    labels: {type: object, additionalProperties: {type: string}}, note: {type: string, nullable: true},
    parts: {type: array, items: {type: object, properties: {name: {type: string}, kind: {type: string, default: plain}}}}}},
  status: {type: object, properties: {phase: {type: string}}}}}}`

// definitionOf is the definition of a kind with the schema of the rows.
func definitionOf(t require.TestingT, group, plural, kind, versions string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]s.%[1]s},
		spec: {group: %[1]s, scope: Namespaced, names: {plural: %[2]s, kind: %[3]s}, versions: %[4]s}}`, group, plural, kind, versions), &u.Object))
	return u
}

func define(t T, a *api) {
	versions := fmt.Sprintf(`[{name: v1, served: true, storage: true, subresources: {status: {}}, schema: %[1]s}, {name: v2, served: true, storage: false, subresources: {status: {}}, schema: %[1]s}]`, widgetSchema)
	must.Do(a.dynamic.Resource(crds).Create(t.Context(), definitionOf(t, widgets.Group, "widgets", "Widget", versions), metav1.CreateOptions{}))(t)
	until(t, "the kind", func() bool {
		_, err := a.dynamic.Resource(widgetsV2).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
}

// recorder is a T that notes a failure.
type recorder struct {
	ctx    context.Context
	mu     sync.Mutex
	failed string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed += fmt.Sprintf(format, args...)
}

func (r *recorder) FailNow() { runtime.Goexit() }

func (r *recorder) Context() context.Context { return r.ctx }

// failureOf runs a row, and returns what it reports; empty if it passes.
func failureOf(ctx context.Context, r row, a *api) string {
	rec, done := &recorder{ctx: ctx}, make(chan struct{})
	go func() {
		defer close(done)
		r.run(rec, a)
	}()
	<-done
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.failed
}

// TestConformanceNoticesFaults: a row fails on a server that lacks its behaviour, and each row has such a server.
func TestConformanceNoticesFaults(t *testing.T) {
	left := map[string]row{}
	for _, r := range rows() {
		require.NotContains(t, left, r.name, "two rows have one name")
		left[r.name] = r
	}
	noticed := map[string]bool{}
	for _, m := range mutants {
		for _, r := range m.rows {
			require.Contains(t, left, r, "there is no such row")
			noticed[r] = true
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			a := standIn(t, m.broken)
			for _, r := range m.rows {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				assert.NotEmpty(t, failureOf(ctx, left[r], a), "the row %q passes", r)
				cancel()
			}
		})
	}
	for r := range left {
		assert.True(t, noticed[r], "no server without its behaviour fails the row %q", r)
	}
}
