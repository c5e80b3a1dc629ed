package apiserver

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
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
	for _, some := range [][]row{readRows, writeRows, deleteRows, watchRows, ownRows, customRows, accessRows} {
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
	a := standIn(t, func(*Server) {}, func(*rest.Config) {})
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

// standIn starts a stand-in with the kind of the rows. The rows see it through what changes the configuration of their clients.
func standIn(t *testing.T, rules func(*Server), through func(*rest.Config)) *api {
	t.Helper()
	var granted rights
	s := must.Do(Start(Options{Allows: granted.allow}))(t)
	t.Cleanup(s.Close)
	define(t, newAPI(s.RESTConfig, t))
	rules(s)
	a := newAPI(func(user string, groups ...string) *rest.Config {
		c := s.RESTConfig(user, groups...)
		through(c)
		return c
	}, t)
	a.grant = func(_ T, user, namespace string, rule rbacv1.PolicyRule) { granted.add(right{user, namespace, rule}) }
	return a
}

// right allows a user what a rule of RBAC says, in one namespace, or everywhere if it is empty.
type right struct {
	user, namespace string
	rule            rbacv1.PolicyRule
}

type rights struct {
	mu  sync.Mutex
	all []right
}

func (r *rights) add(one right) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

func (r *rights) allow(user string, what authorizationv1.ResourceAttributes) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if what.Subresource != "" {
		what.Resource += "/" + what.Subresource
	}
	return slices.ContainsFunc(r.all, func(r right) bool {
		return r.user == user && (r.namespace == "" || r.namespace == what.Namespace) && slices.Contains(r.rule.Verbs, what.Verb) &&
			slices.Contains(r.rule.APIGroups, what.Group) && slices.Contains(r.rule.Resources, what.Resource)
	})
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
	until(t, "the right", func() bool { return a.may(t, user, namespace, rule) })
}

var names atomic.Int64

// name returns a name that no other call gets.
func name(base string) string { return fmt.Sprintf("%s-%d", base, names.Add(1)) }

// until waits for something that a real API server does a moment later.
func until(t T, what string, ok func() bool) {
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		require.NoError(t, t.Context().Err(), what)
		require.Less(t, time.Now(), end, what)
	}
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
