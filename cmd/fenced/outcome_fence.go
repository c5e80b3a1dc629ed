package main

import (
	"fmt"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
)

// maxPods bounds how many pods an answer names.
const maxPods = 20

// dryRunRefused is the answer to a dry run of a fence that a gate forbids: who asks wants all
// that was found.
func dryRunRefused(o api.Order, out order.Outcome, r *reason.Refusal) api.OrderResult {
	return api.OrderResult{
		Message: fmt.Sprintf("%s would not be fenced (%s): %s", o.Of(), r.Reason, r.Message),
		Effect:  fenceEffect(o), Gates: out.Gates, Target: targetOf(out.Target),
	}
}

// targetOf is what is known about a target, as the API says it.
func targetOf(t *order.Target) *api.OrderTarget {
	if t == nil {
		return nil
	}
	out := &api.OrderTarget{
		Cluster: t.Cluster, Node: t.Node, Machine: t.Machine, Ready: t.Ready, ReadySince: t.ReadySince,
		PodsProblem: t.PodsProblem, BMC: t.BMC, Identity: t.Identity, UUID: t.UUID,
	}
	if t.Pods != nil {
		count := len(t.Pods.Names)
		out.PodCount, out.PodsMore, out.Pods = &count, t.Pods.More, t.Pods.Names[:min(count, maxPods)]
	}
	return out
}

func fenceMessage(o api.Order, out order.Outcome) string {
	switch {
	case o.DryRun && !out.Joined:
		return o.Of() + " would be fenced"
	case out.Joined:
		return "joined run " + out.Run + ", which already fences " + o.Of()
	}
	return "run " + out.Run + " fences " + o.Of()
}

func fenceEffect(o api.Order) []string {
	all := []string{"the power of " + o.Of() + " is cut at once, without a shutdown"}
	if o.Machine == "" {
		all = append(all, "after the BMC has read Off twice, its Node is isolated and its pods can move to other nodes")
	} else {
		all = append(all, "if it has a Node, that is isolated after the BMC has read Off twice, and its pods can move to other nodes")
	}
	if o.OffOnly {
		return append(all, "the host stays off until fencectl unfence")
	}
	if o.Machine == "" {
		return append(all, "the host is powered on again, and its labels, annotations, taints and cordon are restored",
			"if the Node does not come back after guards.maxAttempts power cycles, its Machine is replaced where that is allowed")
	}
	return append(all, "the host is powered on again; if the Machine has no Node and none registers in time, the Machine is replaced where that is allowed")
}
