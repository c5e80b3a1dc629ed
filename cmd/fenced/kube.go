package main

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/k8swatch"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// watch and kube are a cluster as internal/admit and internal/run see it. The types of
// k8swatch are its own: it is the only importer of client-go and imports nothing that acts.
type watch struct{ *k8swatch.Cluster }

// View implements admit.Watch.
func (w watch) View() admit.View {
	v := w.Cluster.View()
	return admit.View{Synced: v.Synced, Age: v.Age, Since: v.Since, Skew: v.Skew, SkewKnown: v.SkewKnown, Problem: v.Problem}
}

// kube implements engine.Kube.
type kube struct{ *k8swatch.Cluster }

// Look implements run.Kube.
func (k kube) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	l := k.Cluster.Look(ctx, r, backups)
	return run.Fresh{Observation: l.Seen, Node: l.FreshNode, Machine: l.FreshMachine, Cluster: l.Cluster, NoNodeLocks: l.NoNodeLocks,
		Members: l.Members, MembersKnown: l.MembersKnown, Lease: l.Lease, Request: l.Request, RequestRead: l.RequestRead, Err: l.Err}
}

// Pods lists the pods on a Node, as engine.ClusterOptions wants it.
func (k kube) Pods(ctx context.Context, node string) (order.Pods, error) {
	names, more, err := k.Cluster.Pods(ctx, node)
	return order.Pods{Names: names, More: more}, err
}

// Announce implements lead.Announcer.
func (k kube) Announce(ctx context.Context, a lead.Announcement) (time.Duration, string, error) {
	return k.Cluster.Announce(ctx, k8swatch.Announcement(a))
}

// handovers implements engine.Handovers.
type handovers struct{ k8swatch.Handovers }

// Prepare implements engine.Handovers.
func (h handovers) Prepare(ctx context.Context, check *policy.Check, t remediate.Target, from policy.Template, controlPlane bool) (engine.HandoverDraft, error) {
	return h.Handovers.Prepare(ctx, check, t, from, controlPlane)
}
