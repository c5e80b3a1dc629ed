package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/sweep"
)

// BMCs implements api.Daemon.
func (c control) BMCs(ctx context.Context, cluster string) (api.BMCs, error) {
	if cluster != "" && !slices.Contains(c.clusterNames(""), cluster) {
		return api.BMCs{}, api.NotFound(string(reason.NoSuchCluster), fmt.Sprintf("no cluster %q is configured", cluster), "fencectl status lists the clusters")
	}
	found, err := c.sweep.Results(ctx, cluster)
	if err != nil {
		return api.BMCs{}, apiError(api.Order{Cluster: cluster}, err)
	}
	return wireBMCs(found), nil
}

// LookAtBMCs implements api.Daemon.
func (c control) LookAtBMCs(ctx context.Context, o api.Order) (api.BMCs, error) {
	look, verb := c.sweep.Test, "tests"
	if o.Verb == api.AuditBMC {
		look, verb = c.sweep.Audit, "audits"
	}
	message := o.Actor + " " + verb + " the BMCs of " + o.Node
	if o.Reason != "" {
		message += ": " + o.Reason
	}
	c.events.Emit(event.Event{Type: event.Ordered, Cluster: o.Cluster, Node: o.Node, Actor: o.Actor, Why: o.Reason, Message: message})
	found, err := look(ctx, o.Cluster, o.Node)
	if err != nil {
		return api.BMCs{}, apiError(o, err)
	}
	return wireBMCs(found), nil
}

// countBMCs counts the devices as bmc list does; nothing before the inventory was read.
func (c control) countBMCs(ctx context.Context) api.BMCCount {
	found, err := c.sweep.Results(ctx, "")
	if err != nil {
		return api.BMCCount{}
	}
	return wireBMCs(found).Count()
}

func wireBMCs(found []sweep.Result) api.BMCs {
	out := api.BMCs{BMCs: make([]api.BMC, 0, len(found))}
	for i := range found {
		out.BMCs = append(out.BMCs, wireBMC(&found[i]))
	}
	return out
}

func wireBMC(r *sweep.Result) api.BMC {
	t := &r.Description
	b := api.BMC{
		Cluster: r.Cluster, Node: r.Node, Host: r.Host, Source: r.Source, Device: r.Address, Driver: string(r.Driver), Assurance: string(r.Assurance),
		State: string(r.State), Dependable: r.Dependable, Reason: string(r.Reason), Problem: r.Problem,
		Power: r.Power.String(), PowerRaw: r.Raw, Identity: string(r.Identity), UUID: r.UUID, Serial: r.Serial,
		LatencySeconds: r.Latency.Seconds(), LatencyP95Seconds: r.LatencyP95.Seconds(), Checked: r.Checked.UTC(), LastGood: r.LastGood.UTC(),
		Next: r.Next.UTC(), Failures: r.Failures, Manufacturer: t.Manufacturer, Model: t.Model, Firmware: t.Firmware, MACs: t.MACs,
		RestorePolicy: t.RestorePolicy, CertificateUntil: t.CertificateUntil, Audited: r.Audited.UTC(), AuditProblem: r.AuditProblem,
		DescribeProblem: r.DescribeProblem,
	}
	if r.Host != "" {
		b.Level = r.Level + 1
	}
	for _, e := range t.PowerEvents {
		b.PowerEvents = append(b.PowerEvents, api.PowerEvent{At: e.At, Text: e.Text})
	}
	for _, f := range r.Findings {
		b.Findings = append(b.Findings, api.BMCFinding{Code: string(f.Code), Message: f.Message})
	}
	for _, f := range r.Refused {
		b.Refused = append(b.Refused, api.BMCFinding{Code: string(f.Reason), Message: f.Message})
	}
	return b
}

// enroll stores, or shows, which devices a person confirms.
func (c control) enroll(ctx context.Context, o order.Order) (api.OrderResult, error) {
	x, err := c.engine.Enroll(ctx, o)
	if err != nil {
		return api.OrderResult{}, apiError(api.Order{Cluster: o.Cluster, Node: o.Node, Machine: o.Machine}, err)
	}
	res := api.OrderResult{Message: "the BMCs of " + o.Of() + " are enrolled"}
	if o.DryRun {
		res.Message = "the BMCs of " + o.Of() + " would be enrolled"
	}
	res.Effect = append(res.Effect, fmt.Sprintf("the machine of %s is %s", o.Of(), x.Pin.SystemUUID))
	for _, d := range x.Devices {
		res.Effect = append(res.Effect, enrolledText(d))
	}
	return res, nil
}

// enrolledText is what a device said, and what that is worth.
func enrolledText(d hosts.EnrolledDevice) string {
	line := fmt.Sprintf("level %d: %s (%s, assurance %s) reads %s", d.Level+1, d.Device, d.Driver, d.Assurance, d.Power)
	if d.UUID != "" {
		line += " and says it is " + d.UUID
	} else {
		line += " and reports no identity: your confirmation replaces it"
	}
	for _, told := range []struct{ name, value string }{{"system", d.System}, {"serial", d.Serial}, {"MAC addresses", strings.Join(d.MACs, " ")}} {
		if told.value != "" {
			line += ", " + told.name + " " + told.value
		}
	}
	if d.UUID == "" && d.System+d.Serial+strings.Join(d.MACs, "") != "" {
		line += ". The enrolment ends if one of these changes"
	}
	return line
}
