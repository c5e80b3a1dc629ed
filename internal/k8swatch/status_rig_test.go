package k8swatch

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// checkStatusWrites: what is written stands there, and the same again is no write.
func checkStatusWrites(t *testing.T, k *Cluster, r policy.CheckReport, read func() *unstructured.Unstructured,
	also func(u *unstructured.Unstructured, allowed string),
) {
	t.Helper()
	ctx := rigtest.Context(t, 3*time.Minute)
	require.NoError(t, k.WriteStatus(ctx, r))
	blocked := read()
	for name, want := range map[string]int64{"expectedMachines": 2, "currentHealthy": 1, "remediationsAllowed": 0} {
		got, found, err := unstructured.NestedInt64(blocked.Object, "status", name)
		require.NoError(t, err)
		assert.True(t, found, name)
		assert.Equal(t, want, got, name)
	}
	also(blocked, "False")
	require.NoError(t, k.WriteStatus(ctx, r))
	assert.Equal(t, blocked.GetResourceVersion(), read().GetResourceVersion(), "nothing changed, nothing is written")

	r.Allowed, r.Message, r.Healthy, r.RemediationsAllowed = true, "", 2, 2
	for name, change := range map[string]func(*policy.CheckReport){
		"a file's":       func(r *policy.CheckReport) { r.Source = "policies.d/a.yaml:1" },
		"paused":         func(r *policy.CheckReport) { r.State = policy.StatePaused },
		"of another one": func(r *policy.CheckReport) { r.UID = "00000000-0000-0000-0000-000000000000" },
	} {
		not := r
		change(&not)
		require.NoError(t, k.WriteStatus(ctx, not), name)
		require.Equal(t, blocked.GetResourceVersion(), read().GetResourceVersion(), name)
	}
	require.NoError(t, k.WriteStatus(ctx, r))
	also(read(), "True")
}

// checkEvent: two equal Events about a check are one that is counted.
func checkEvent(t *testing.T, c *rig.ControlPlane, k *Cluster, r policy.CheckReport) {
	t.Helper()
	ctx := rigtest.Context(t, 3*time.Minute)
	writing, stop := context.WithCancel(ctx)
	var g sync.WaitGroup
	g.Go(func() { k.DeliverEvents(writing) })
	defer func() { stop(); g.Wait() }()
	for range 2 {
		k.QueueEvent(event.KubeEvent{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID, At: time.Now(), Warning: true,
			Reason: "RemediationRestricted", Message: strings.Repeat("ä", 1024), Action: "Evaluate", Instance: "bastion-1"})
	}
	about := metav1.ListOptions{FieldSelector: "source=fenced,involvedObject.name=" + r.Name}
	k8stest.Until(t, "the Event is counted", func() bool {
		list, err := c.Client().CoreV1().Events(metav1.NamespaceAll).List(ctx, about)
		return err == nil && len(list.Items) == 1 && list.Items[0].Count == 2
	})
	list := must.Do(c.Client().CoreV1().Events(metav1.NamespaceAll).List(ctx, about))(t)
	require.Len(t, list.Items, 1)
	e := list.Items[0]
	assert.Equal(t, "Warning", e.Type)
	assert.Equal(t, "RemediationRestricted", e.Reason)
	assert.Equal(t, r.UID, string(e.InvolvedObject.UID))
	assert.Len(t, e.Message, 1024)
	assert.Equal(t, []string{"fenced", "fenced.io/fenced", "bastion-1", "Evaluate"}, []string{e.Source.Component, e.ReportingController, e.ReportingInstance, e.Action})
	newer := must.Do(c.Dynamic().Resource(schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}).Namespace(e.Namespace).Get(ctx, e.Name, metav1.GetOptions{}))(t)
	assert.Equal(t, []any{"fenced.io/fenced", "bastion-1", "Evaluate"}, []any{newer.Object["reportingController"], newer.Object["reportingInstance"], newer.Object["action"]})
	assert.Zero(t, k.EventsDropped())
}

func TestStatusOfAnOpenShiftCheck(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	name := rigtest.Name("told-check")
	made := must.Do(c.CreateCheck(ctx, rig.Check{Name: name, Match: map[string]string{"none": name}, Conditions: rig.NotReadyFor("300s")}))(t)
	read := func() *unstructured.Unstructured {
		return must.Do(c.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{}))(t)
	}
	r := policy.CheckReport{
		Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: rig.Namespace, Name: name,
		UID: string(made.GetUID()), Source: "cluster", State: policy.StateActive, Expected: 2, Healthy: 1, Message: "1 of 2",
	}
	checkStatusWrites(t, k, r, read, func(u *unstructured.Unstructured, allowed string) {
		cond := conditionsOf(u)[severe].find("RemediationAllowed")
		require.Equal(t, allowed, cond["status"])
		if allowed == "True" {
			assert.NotContains(t, cond, "reason")
			assert.NotContains(t, cond, "severity")
			return
		}
		assert.Equal(t, "TooManyUnhealthy", cond["reason"])
		assert.Equal(t, "Warning", cond["severity"])
	})
	checkEvent(t, c, k, r)
}
