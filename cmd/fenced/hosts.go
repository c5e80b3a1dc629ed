package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmclib"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/fenceagent"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/wire"
)

// inventory is the administrator's inventory, with passwords read at each use.
type inventory struct {
	// entries are by cluster, and by what they are about: the name of a Node, or the "namespace/name" of a Machine.
	entries map[string]map[string]*config.HostEntry
	// protected are the entries that say so, by cluster and by what they are about: few, so it is quickly said of each host.
	protected map[[2]string]bool
	unread    error
}

// newInventory makes the inventory of what hosts.d holds, whose entries it keeps. Of several of one name, which are refused, it
// keeps the last one.
func newInventory(h config.Hosts) inventory {
	i := inventory{map[string]map[string]*config.HostEntry{}, map[[2]string]bool{}, h.Unread}
	for _, e := range h.Entries {
		if i.entries[e.Cluster] == nil {
			i.entries[e.Cluster] = map[string]*config.HostEntry{}
		}
		i.entries[e.Cluster][e.Of()] = e
		if key := [2]string{e.Cluster, e.Of()}; e.Protected {
			i.protected[key] = true
		} else {
			delete(i.protected, key)
		}
	}
	return i
}

// List implements hosts.Inventory.
func (h inventory) List(cluster string) []string {
	return slices.Collect(maps.Keys(h.entries[cluster]))
}

// Protected implements hosts.Inventory.
func (h inventory) Protected(cluster, of string) bool {
	return h.protected[[2]string{cluster, of}]
}

// Refused implements hosts.Inventory.
func (h inventory) Refused(cluster, of string) string {
	if e := h.entries[cluster][of]; e != nil && e.Refused != nil {
		return strings.ReplaceAll(e.Refused.Error(), "\n", "; ") + ": " + wire.CorrectFiles
	}
	return ""
}

// Unread implements hosts.Inventory.
func (h inventory) Unread() string {
	if h.unread == nil {
		return ""
	}
	return strings.ReplaceAll(h.unread.Error(), "\n", "; ") + ": " + wire.CorrectFiles
}

// Bare implements hosts.Inventory.
func (h inventory) Bare(cluster, of string) *bmc.Host {
	if e := h.entries[cluster][of]; e != nil {
		return &e.Host
	}
	return nil
}

// Find implements hosts.Inventory. A password that only the cluster's API can give
// is left to the engine.
func (h inventory) Find(ctx context.Context, cluster, of string) (bmc.Host, bool, error) {
	e := h.entries[cluster][of]
	if e == nil {
		return bmc.Host{}, false, nil
	}
	host := e.ReadPasswords(ctx)
	for _, l := range host.Levels {
		for i, d := range l.Devices {
			if d.Unusable != nil {
				l.Devices[i].Unusable = &reason.Refusal{Reason: reason.SecretMissing, Message: d.Unusable.Error()}
			}
		}
	}
	if why := h.Refused(cluster, of); why != "" { // with its credentials: a run may have begun with these devices
		return host, true, &reason.Refusal{Reason: reason.InvalidHost, Message: why}
	}
	return host, true, nil
}

// swept is the engine as the health check needs it: thousands of hosts may name one password file.
type swept struct{ *engine.Engine }

// Inventory implements sweep.Engine.
func (s swept) Inventory(ctx context.Context) iter.Seq[hosts.Subject] {
	return s.Engine.Inventory(config.PasswordsOnce(ctx))
}

// drivers makes the Power of each driver that package bmc describes.
var drivers = map[bmc.Driver]func(bmc.Device, bmc.Timing) (bmc.Power, error){
	bmc.DriverIPMI:       func(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return ipmi.New(d, t), nil },
	bmc.DriverRedfish:    func(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return redfish.New(d, t) },
	bmc.DriverBMCLib:     func(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return bmclib.New(d, t) },
	bmc.DriverFenceAgent: func(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return fenceagent.New(d, t) },
}

func opener(read time.Duration) bmc.Opener {
	return func(d bmc.Device) (bmc.Power, error) {
		if open := drivers[d.Driver]; open != nil {
			return open(d, power.Timing(d, read))
		}
		return nil, &bmc.Error{Kind: bmc.KindUnsupported, Op: "open", Addr: d.String(),
			Err: fmt.Errorf("there is no driver %q", d.Driver)}
	}
}

// checkCluster is an error for the name of a cluster that is not configured; empty means all.
func (c control) checkCluster(cluster string) error {
	if cluster != "" && !slices.Contains(c.clusterNames(""), cluster) {
		return api.NotFound(string(reason.NoSuchCluster), fmt.Sprintf("no cluster %q is configured", cluster), "fencectl status lists the clusters")
	}
	return nil
}

// BMCs implements api.Daemon.
func (c control) BMCs(ctx context.Context, f wire.BMCFilter) (wire.BMCs, error) {
	if err := c.checkCluster(f.Cluster); err != nil {
		return wire.BMCs{}, err
	}
	of := func(cluster, node, machine string) bool {
		return (f.Cluster == "" || cluster == f.Cluster) && (f.Of == "" || node == f.Of || machine == f.Of)
	}
	if f.Undependable && f.Of == "" { // whoever asks for these has mostly just asked for the status
		surveyed, err := c.surveyBMCs(ctx)
		if err != nil {
			return wire.BMCs{}, err
		}
		type host struct{ cluster, node, machine string }
		bad, asked := map[host]bool{}, of
		for i := range surveyed.bad {
			b := &surveyed.bad[i]
			bad[host{b.Cluster, b.Node, b.Machine}] = true
		}
		of = func(cluster, node, machine string) bool {
			return asked(cluster, node, machine) && bad[host{cluster, node, machine}]
		}
	}
	found, err := c.sweep.Select(ctx, of, func(r *sweep.Result) bool {
		b := wireBMC(r)
		return f.Wants(&b)
	})
	if err != nil {
		return wire.BMCs{}, apiError(wire.Order{Cluster: f.Cluster}, err)
	}
	return wireBMCs(found), nil
}

// bmcSurvey is what is known about the devices of all hosts, as far as it says which could be relied on.
type bmcSurvey struct {
	devices map[string][]device // by cluster
	count   wire.BMCCount
	bad     []wire.BMC // those that could not be, and those that refuse their account, in the order of BMCs
}

// surveys shares a survey among those who ask while it is made, or until it is some times as old as it took: the page asks for the status, for
// the Nodes and for the devices that are not dependable, one right after the other, and each answer takes longer than the survey. An order ends that:
// who has tested a BMC sees the result.
type surveys struct {
	orders atomic.Uint64 // that people have given

	making *semaphore.Weighted // guards the rest
	last   bmcSurvey
	after  uint64 // so many orders
	ended  time.Time
	shared time.Duration // for so long after it ended
}

// A survey is shared for a few times as long as it took. maxShared bounds that: a daemon that was stopped in the middle of one has taken long.
const (
	sharedTimes = 3
	maxShared   = 10 * time.Second
)

func newSurveys() *surveys { return &surveys{making: semaphore.NewWeighted(1)} }

// surveyBMCs surveys the devices of all clusters. The result is shared: nobody changes it.
func (c control) surveyBMCs(ctx context.Context) (bmcSurvey, error) {
	x := c.surveys
	if err := x.making.Acquire(ctx, 1); err != nil {
		return bmcSurvey{}, err
	}
	defer x.making.Release(1)
	began, after := time.Now(), x.orders.Load()
	if began.Sub(x.ended) < x.shared && x.after == after {
		return x.last, nil
	}
	s, err := c.surveyAnew(ctx)
	if err != nil {
		return s, err
	}
	x.last, x.after, x.ended, x.shared = s, after, time.Now(), min(sharedTimes*time.Since(began), maxShared)
	time.AfterFunc(x.shared, x.forget)
	return s, nil
}

// forget frees a survey that is too old.
func (x *surveys) forget() {
	_ = x.making.Acquire(context.Background(), 1) // no survey lasts
	defer x.making.Release(1)
	if time.Since(x.ended) >= x.shared {
		x.last = bmcSurvey{}
	}
}

func (c control) surveyAnew(ctx context.Context) (s bmcSurvey, err error) {
	s.devices = map[string][]device{}
	err = c.sweep.Survey(ctx, func(r *sweep.Result) {
		b := wireBMC(r)
		s.add(&b)
	})
	if err != nil {
		return s, apiError(wire.Order{}, err)
	}
	slices.SortFunc(s.bad, func(a, b wire.BMC) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Level, b.Level), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Problem, b.Problem))
	})
	return s, nil
}

func (s *bmcSurvey) add(b *wire.BMC) {
	s.count.Add(b)
	d, list := deviceOf(b), s.devices[b.Cluster]
	if len(list) == cap(list) { // append alone would leave behind several times as much
		list = slices.Grow(list, len(list)+1)
	}
	s.devices[b.Cluster] = append(list, d)
	if d.told != nil {
		s.bad = append(s.bad, *d.told)
	}
}

// LookAtBMCs implements api.Daemon.
func (c control) LookAtBMCs(ctx context.Context, o wire.Order) (wire.BMCs, error) {
	defer c.surveys.orders.Add(1)
	look, verb := c.sweep.Test, "tests"
	if o.Verb == wire.AuditBMC {
		look, verb = c.sweep.Audit, "audits"
	}
	message := o.Actor + " " + verb + " the BMCs of " + o.Node
	if o.Reason != "" {
		message += ": " + o.Reason
	}
	about := o.Cluster
	if about == "" {
		about = c.OnlyCluster()
	}
	c.events.Emit(event.Event{Type: event.Ordered, Cluster: about, Node: o.Node, Actor: o.Actor, Why: o.Reason, Message: message}) // before it logs in to anything // I24
	found, err := look(ctx, o.Cluster, o.Node)
	if refusal, refused := errors.AsType[*api.Error](apiError(o, err)); refused { // nothing was asked
		c.Refused(o, refusal)
		return wire.BMCs{}, refusal
	}
	if err != nil {
		return wire.BMCs{}, err
	}
	return wireBMCs(found), nil
}

func wireBMCs(found []sweep.Result) wire.BMCs {
	out := wire.BMCs{BMCs: make([]wire.BMC, 0, len(found))}
	for i := range found {
		out.BMCs = append(out.BMCs, wireBMC(&found[i]))
	}
	return out
}

func wireBMC(r *sweep.Result) wire.BMC {
	t := &r.Description
	b := wire.BMC{
		Cluster: r.Cluster, Node: r.Node, Machine: r.Machine, Host: r.Host, Source: r.Source, Device: r.Address, Driver: string(r.Driver), Assurance: string(r.Assurance),
		State: string(r.State), Dependable: r.Dependable, Reason: string(r.Reason), Problem: r.Problem, User: shown(r.User), PasswordFrom: r.PasswordFrom,
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
		b.PowerEvents = append(b.PowerEvents, wire.PowerEvent(e))
	}
	for _, f := range r.Findings {
		b.Findings = append(b.Findings, wire.BMCFinding{Code: string(f.Code), Message: f.Message})
	}
	for _, f := range r.Refused {
		b.Refused = append(b.Refused, wire.BMCFinding{Code: string(f.Reason), Message: f.Message})
	}
	return b
}

// enroll stores, or shows, which devices a person confirms.
func (c control) enroll(ctx context.Context, o wire.Order) (wire.OrderResult, error) {
	x, err := c.engine.Enroll(ctx, o)
	if err != nil {
		return wire.OrderResult{}, apiError(o, err)
	}
	res := wire.OrderResult{Message: "the BMCs of " + o.Of() + " are enrolled"}
	if o.DryRun {
		res.Message, res.Shown = "the BMCs of "+o.Of()+" would be enrolled", x.Shown()
	} else {
		c.sweep.ReadInventory() // which BMC may be sent a password
		c.sweep.PollSoon(o.Cluster, o.Of())
	}
	res.Effect = append(res.Effect, fmt.Sprintf("the machine of %s is %s", o.Of(), x.Pin.SystemUUID))
	for _, d := range x.Devices {
		res.Effect = append(res.Effect, enrolledText(d))
	}
	for _, secret := range x.Secrets() {
		res.Effect = append(res.Effect, "the password of Secret "+secret+" is sent there")
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
