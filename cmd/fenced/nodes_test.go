package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// TestNodeIsFenceableOnlyByADependableLevel: a Node that a check covers could be fenced if every
// device of one of its power levels can be relied on and nothing forbids its host.
func TestNodeIsFenceableOnlyByADependableLevel(t *testing.T) {
	good := func(level int) wire.BMC {
		return wire.BMC{Cluster: "c", Node: "n", Host: "c/n", Level: level, Device: "ipmi://b", State: "ok", Dependable: true}
	}
	dead := func(level int) wire.BMC {
		d := good(level)
		d.State, d.Dependable, d.Reason, d.Problem = "failed", false, "BMCUnreachable", "no answer"
		return d
	}
	unchecked, refused, own := good(1), good(1), good(1)
	unchecked.State = "unchecked"
	refused.Refused = []wire.BMCFinding{{Code: string(reason.NotEnrolled), Message: "nobody has enrolled it"}}
	own.Refused = []wire.BMCFinding{{Code: string(reason.OwnHost), Message: "this daemon runs on it"}}
	protected, twin := good(1), good(1)
	protected.Refused = []wire.BMCFinding{{Code: string(reason.Protected), Message: "hosts.d says so"}}
	twin.Refused = []wire.BMCFinding{{Code: string(reason.DuplicateUUID), Message: "Node m has its UUID"}}
	unusable := wire.BMC{Cluster: "c", Node: "n", Source: "hosts.d/a.yaml:3", State: "failed", Reason: string(reason.InvalidHost), Problem: "no scheme"}
	other := good(1)
	other.Cluster = "another"
	unread := wire.BMC{Cluster: "c", State: "unchecked", Reason: string(reason.NotSynced)}
	for name, k := range map[string]struct {
		devices         []wire.BMC
		fenceable, code string
		gap             bool
		next            string
	}{
		"no entry":                  {nil, wire.FenceableNo, "NoHost", true, "hosts.d"},
		"only in another cluster":   {[]wire.BMC{other}, wire.FenceableNo, "NoHost", true, "hosts.d"},
		"its cluster is not read":   {[]wire.BMC{unread}, wire.FenceableUnknown, "", false, ""},
		"a good BMC":                {[]wire.BMC{good(1)}, wire.FenceableYes, "", false, ""},
		"a dead BMC":                {[]wire.BMC{dead(1)}, wire.FenceableNo, "BMCUnreachable", true, "fencectl bmc test n --cluster c"},
		"a dead BMC, a good outlet": {[]wire.BMC{dead(1), good(2)}, wire.FenceableYes, "", false, ""},
		"one of two feeds is dead":  {[]wire.BMC{good(1), dead(1)}, wire.FenceableNo, "BMCUnreachable", true, "fencectl bmc test n"},
		"not checked":               {[]wire.BMC{unchecked}, wire.FenceableUnknown, "", false, ""},
		"dead, then not checked":    {[]wire.BMC{dead(2), unchecked}, wire.FenceableUnknown, "", false, ""},
		"not enrolled":              {[]wire.BMC{refused}, wire.FenceableNo, "NotEnrolled", true, "fencectl bmc enroll n"},
		"its own host":              {[]wire.BMC{own}, wire.FenceableNo, "OwnHost", false, "fencectl explain n"},
		"protected":                 {[]wire.BMC{protected}, wire.FenceableNo, "Protected", false, "fencectl explain n"},
		"another Node's UUID":       {[]wire.BMC{twin}, wire.FenceableNo, "DuplicateUUID", true, "fencectl explain n"},
		"a password too long":       {[]wire.BMC{{Cluster: "c", Node: "n", State: "failed", Reason: string(reason.SecretMissing)}}, wire.FenceableNo, "SecretMissing", true, "then fencectl bmc test n"},
		"an entry nobody can read":  {[]wire.BMC{unusable}, wire.FenceableNo, "InvalidHost", true, "fencectl explain n"},
	} {
		t.Run(name, func(t *testing.T) {
			list := fleetOf(covering("n", true), k.devices, "n").nodes()
			require.Len(t, list, 1)
			n := list[0]
			assert.Equal(t, []string{k.fenceable, k.code}, []string{n.Fenceable, n.Reason}, n.Message)
			assert.Equal(t, k.gap, n.IsGap())
			assert.Contains(t, n.Next, k.next)
			cover := fleetOf(covering("n", true), k.devices, "n").cover()
			assert.Equal(t, 1, cover.Covered)
			assert.Equal(t, k.gap, len(cover.Gaps) == 1)
		})
	}
}

func fleetOf(found policy.Report, devices []wire.BMC, nodes ...string) fleet {
	f := fleet{cluster: "c", names: nodes, found: policy.Overview{Report: found}}
	s := bmcSurvey{devices: map[string][]device{}}
	for i := range devices {
		s.add(&devices[i])
	}
	f.devices = s.devices[f.cluster]
	for i := range found.Checks {
		k := &found.Checks[i]
		p := policy.Protected{Check: k.ID(), NeedsHosts: k.NeedsHosts}
		for _, t := range k.Targets {
			switch {
			case t.Verdict == policy.Skipped:
			case t.Node != "":
				p.Nodes = append(p.Nodes, t.Node)
			default:
				p.Machines = append(p.Machines, t.Machine)
			}
		}
		if k.Protects() {
			f.found.Protected = append(f.found.Protected, p)
		}
	}
	return f
}

// TestStateOfANodeIsItsMostUrgent: a Node that is in several states has the first of them in the order of the constants.
func TestStateOfANodeIsItsMostUrgent(t *testing.T) {
	good, dead := wire.BMC{Cluster: "c", Node: "n", Level: 1, Dependable: true}, wire.BMC{Cluster: "c", Node: "n", Level: 1, Reason: "BMCUnreachable"}
	sick := covering("n", true)
	sick.Checks[0].Targets[0].Verdict = policy.Pending
	paused := covering("n", true)
	paused.Checks[0].State, paused.Checks[0].Targets[0].Verdict = policy.StatePaused, policy.Unhealthy
	run := func(s remediate.Step) []remediate.Run {
		return []remediate.Run{{ID: "r", Step: s, Target: remediate.Target{Node: "n", Namespace: "ns", Machine: "m"}}}
	}
	blocked, hold := []admit.Refused{{Node: "n"}}, []state.Hold{{Node: "n"}}
	for _, k := range []struct {
		want    string
		found   policy.Report
		device  wire.BMC
		runs    []remediate.Run
		refused []admit.Refused
		holds   []state.Hold
	}{
		{wire.NodeHeld, sick, dead, run(remediate.Held), blocked, hold},
		{wire.NodeRemediating, sick, dead, run(remediate.PowerOff), blocked, hold},
		{wire.NodeWaiting, sick, dead, run(remediate.Waiting), blocked, hold},
		{wire.NodeBlocked, sick, dead, nil, blocked, hold},
		{wire.NodeUnhealthy, sick, dead, nil, []admit.Refused{{Node: "n", Run: "another"}}, hold},
		{wire.NodeUnhealthy, paused, good, nil, nil, nil},
		{wire.NodeOnHold, covering("n", true), dead, nil, nil, hold},
		{wire.NodeOnHold, policy.Report{}, good, nil, nil, hold},
		{wire.NodeOnHold, covering("n", true), good, nil, nil, []state.Hold{{Node: "ns/of-n"}}}, // by the name of its Machine
		{wire.NodeUnfenceable, covering("n", true), dead, nil, nil, []state.Hold{{Node: "other"}}},
		{wire.NodeHealthy, covering("n", true), good, nil, nil, nil},
		{wire.NodeUncovered, policy.Report{}, good, nil, nil, nil},
	} {
		f := fleetOf(k.found, []wire.BMC{k.device}, "n")
		f.runs, f.refused, f.holds, f.heldOn = k.runs, k.refused, k.holds, map[string]string{"ns/of-n": "n"}
		list := f.nodes()
		require.Len(t, list, 1)
		assert.Equal(t, k.want, list[0].State)
		f.unseen = true
		if old := f.nodes()[0].State; slices.Contains([]string{wire.NodeHeld, wire.NodeRemediating, wire.NodeWaiting, wire.NodeBlocked}, k.want) {
			assert.Equal(t, k.want, old, "fenced knows that by itself")
		} else {
			assert.Equal(t, wire.NodeUnseen, old, "a Node of a cluster that is not seen is not called healthy")
		}
		assert.Equal(t, len(k.runs) > 0, list[0].Run == "r")
	}
}

// TestDeletedNodeKeepsItsPlace: a Node that its run has deleted is listed once, where it stood, although its Machine has none now.
func TestDeletedNodeKeepsItsPlace(t *testing.T) {
	found := covering("", true)
	found.Checks[0].Targets[0] = policy.TargetReport{Machine: "ns/m", Verdict: policy.Pending}
	f := fleetOf(found, nil)
	f.runs = []remediate.Run{{ID: "r", Step: remediate.PowerOn, Target: remediate.Target{Node: "n", Namespace: "ns", Machine: "m"}}}
	f.holds = []state.Hold{{Node: "ns/m"}, {Node: "gone"}}
	list := f.nodes()
	require.Len(t, list, 1)
	addPlaces(list, func(of string, nodes []string) []cluster.Place {
		assert.Equal(t, []string{"c", "n"}, append([]string{of}, nodes...))
		return []cluster.Place{{Zone: "a", Rack: "\x1b[2J" + strings.Repeat("r", 1000)}} // from the labels in the record of the run
	})
	n := list[0]
	assert.Equal(t, []string{"n", "", "a", wire.NodeRemediating, "r"}, []string{n.Node, n.Machine, n.Zone, n.State, n.Run})
	assert.NotContains(t, n.Rack, "\x1b")
	assert.Len(t, n.Rack, 63)
}

func covering(node string, needsHosts bool) policy.Report {
	return policy.Report{Checks: []policy.CheckReport{{
		Kind: policy.FencePolicyKind, Name: "workers", State: policy.StateActive, NeedsHosts: needsHosts,
		Targets: []policy.TargetReport{{Node: node, Verdict: policy.Healthy}},
	}}}
}

// TestNodeWithoutACheckIsListed: a Node that no check covers, and one whose check deletes Machines,
// is listed, and is no gap. One that its check skips is not covered.
func TestNodeWithoutACheckIsListed(t *testing.T) {
	list := fleetOf(covering("n", false), []wire.BMC{{Cluster: "c", Node: "", Machine: "ns/m", Level: 1, Dependable: true, Host: "c/ns/m", State: "ok"}}, "n", "other").nodes()
	require.Len(t, list, 3)
	assert.Equal(t, []string{"n", "other", "ns/m"}, []string{list[0].Name(), list[1].Name(), list[2].Name()})
	assert.Equal(t, []string{"FencePolicy workers"}, list[0].Checks)
	assert.Equal(t, wire.FenceableNotAsked, list[0].Fenceable)
	assert.Empty(t, list[1].Checks)
	assert.Equal(t, wire.FenceableYes, list[2].Fenceable)

	skips := covering("n", true)
	skips.Checks[0].Targets[0].Verdict = policy.Skipped
	assert.Zero(t, fleetOf(skips, nil, "n").cover().Covered)
	paused := covering("n", true)
	paused.Checks[0].State = policy.StatePaused
	assert.Zero(t, fleetOf(paused, nil, "n").cover().Covered)
}

// TestStatusNamesWhatIsNotProtected: status is degraded while no check covers any Node, while a check
// selects nothing, and while a covered Node could not be fenced.
func TestStatusNamesWhatIsNotProtected(t *testing.T) {
	status := func(found policy.Report, devices ...wire.BMC) wire.Status {
		c := wire.ClusterStatus{Name: "c", Armed: true, Mode: "evaluate"}
		for i := range found.Checks {
			c.Checks = append(c.Checks, checkStatus(&found.Checks[i]))
		}
		cover := fleetOf(found, devices, "n").cover()
		c.Cover = &cover
		return wire.Status{Armed: true, Clusters: []wire.ClusterStatus{c}}
	}
	good := wire.BMC{Cluster: "c", Node: "n", Host: "c/n", Level: 1, State: "ok", Dependable: true}
	fine := covering("n", true)
	fine.Checks[0].Allowed, fine.Checks[0].Expected = true, 1
	assert.Empty(t, status(fine, good).Degraded())

	one := func(s wire.Status) string {
		why := s.Degraded()
		require.Len(t, why, 1)
		return why[0]
	}
	assert.Contains(t, one(status(policy.Report{})), "no check covers any Node of cluster c: fenced fences nothing there by itself. Next: see which checks it knows: fencectl check-config --cluster c")
	assert.Contains(t, one(status(fine)), "n in c is covered by a check, and could not be fenced: NoHost: neither hosts.d nor a BareMetalHost names its BMC. ")

	idle := fine
	idle.Checks = append(idle.Checks[:1:1], policy.CheckReport{Kind: policy.FencePolicyKind, Name: "typo", State: policy.StateActive, Allowed: true})
	assert.Contains(t, one(status(idle, good)), "check typo in c selects nothing")
	idle.Checks[1].Name = "machine-api-termination-handler" // OpenShift's own, for spot instances
	assert.Empty(t, status(idle, good).Degraded())

	slipped := status(fine, good)
	addSlips(slipped.Clusters[0].Checks, map[policy.CheckID]string{fine.Checks[0].ID(): "no Node has the condition ready; did you mean Ready?"})
	assert.Contains(t, one(slipped), "did you mean Ready?")

	paused := covering("n", true) // as somebody wants it
	paused.Checks[0].State = policy.StatePaused
	assert.Empty(t, status(paused, good).Degraded())
	respond := status(policy.Report{}) // others decide whom to fence
	respond.Clusters[0].Mode = "respond"
	assert.Empty(t, respond.Degraded())
}

// Whoever switches the BMC health check off is told what status cannot know then.
func TestStatusTellsThatNobodyLooksAtTheBMCs(t *testing.T) {
	cover := wire.NodeCover{Covered: 3, Unknown: 2}
	assert.Empty(t, uncheckedHint(cover, false))
	assert.Empty(t, uncheckedHint(wire.NodeCover{Covered: 3}, true))
	assert.Contains(t, uncheckedHint(cover, true), "2 of 3 covered nodes could be fenced is not known, because sweep.interval is 0s")
}

// What keeps fenced from acting in a cluster has its code and the command that comes next.
func TestNextOfTheProblemOfACluster(t *testing.T) {
	for name, c := range map[string]struct {
		status     engine.ClusterStatus
		code, next string
	}{
		"clock":                {engine.ClusterStatus{ViewBad: "the clock", ViewReason: reason.ClockSkew}, "ClockSkew", "chronyc tracking"},
		"an old view":          {engine.ClusterStatus{ViewBad: "old", ViewReason: reason.ViewStale}, "ViewStale", "kubectl --kubeconfig /etc/kc get nodes "},
		"a watch fails":        {engine.ClusterStatus{ViewBad: "watch Node: forbidden"}, "", "kubectl --kubeconfig /etc/kc get nodes "},
		"another installation": {engine.ClusterStatus{Owner: true, Idle: "b holds it", HeldBy: "b holds it"}, "NotOwner", "systemctl disable --now fenced"},
		"an unknown holder":    {engine.ClusterStatus{Owner: true, Idle: "not known"}, "NotOwner", "kubectl --kubeconfig /etc/kc -n kube-system get lease fenced"},
		"no owner":             {engine.ClusterStatus{Idle: "no instance owns the cluster"}, "NotOwner", "etcdctl endpoint health"},
		"nothing":              {engine.ClusterStatus{Owner: true}, "", ""},
	} {
		c.status.Name = "prod"
		assert.Equal(t, c.code, clusterStatus(c.status, policy.Report{}).ProblemReason, name)
		next := nextOfProblem(&c.status, "/etc/kc")
		assert.Contains(t, next, c.next, name)
		assert.Equal(t, c.next == "", next == "", name)
	}
	assert.Contains(t, nextOfAudit("/var/log/fenced/audit.jsonl", fmt.Errorf("write: %w", syscall.ENOSPC)), "make room: df -h /var/log/fenced; ")
	assert.Contains(t, nextOfAudit("/var/log/fenced/audit.jsonl", errors.New("denied")), "ls -ld /var/log/fenced /var/log/fenced/audit.jsonl; ")
}

// An account that BMCs refuse is named once: the user, the BMC, where the password stands, and how to have the right one tried.
func TestRefusedAccountIsNamed(t *testing.T) {
	device := func(node, from string) wire.BMC {
		return wire.BMC{Cluster: "c", Node: node, Host: "c/" + node, Level: 1, Device: "ipmi://" + node, State: "failed", Reason: "BMCAuth", Problem: "refused", User: "admin", PasswordFrom: from}
	}
	file, secret, credential := device("n-1", "file /etc/p"), device("n-2", "Secret ns/bmc"), device("", "systemd credential bmc")
	privilege, machine := device("n-3", "file /etc/p"), device("", "file /etc/p")
	privilege.Reason, machine.Machine = "BMCPrivilege", "ns/m"
	for want, d := range map[string]wire.BMC{
		"write the password of user admin at ipmi://n-1 into /etc/p (no reload is needed), then fencectl bmc test n-1 --cluster c":                   file,
		"correct the user and the password of ipmi://n-2 (now admin): kubectl -n ns edit secret bmc; then fencectl bmc test n-2 --cluster c":         secret,
		"correct the password of user admin at ipmi:// in its systemd credential bmc, then systemctl restart fenced":                                 credential,
		"give user admin the right to switch the power at ipmi://n-3, then fencectl bmc test n-3 --cluster c":                                        privilege,
		"write the password of user admin at ipmi:// into /etc/p (no reload is needed), then fencectl bmc list shows it after the next health check": machine,
	} {
		assert.Equal(t, want, nextOfAccount(&d))
	}

	fleet := []wire.BMC{file, device("n-4", "file /etc/p"), secret, {Cluster: "c", Node: "n-5", Reason: "BMCUnreachable"}}
	list := refusedAccounts(fleet, nil)
	require.Len(t, list, 2)
	assert.Equal(t, []int{2, 1}, []int{list[0].Count, list[1].Count})
	list = refusedAccounts(fleet, []wire.NodeGap{{Reason: "BMCAuth", Node: "n-4"}})
	require.Len(t, list, 1, "a line about a Node says the other")
	assert.Equal(t, "n-2", list[0].Node)

	for i := range 3 * maxAccounts {
		fleet = append(fleet, device("n-2", fmt.Sprintf("Secret ns/bmc-%d", i)))
	}
	assert.Len(t, refusedAccounts(fleet, nil), maxAccounts, "a site whose accounts have expired does not fill the screen")

	told := wireBMC(&sweep.Result{User: strings.Repeat("x", 1<<20), PasswordFrom: "Secret ns/bmc"})
	assert.Less(t, len(nextOfAccount(&told)), 2*maxShownText, "who writes the Secret chooses the name")

	n := fleetOf(covering("n-1", true), []wire.BMC{file}, "n-1").nodes()
	assert.Equal(t, nextOfAccount(&file), n[0].Next)
	blocked := []wire.Blocked{{Cluster: "c", Node: "n-1", Reason: "BMCAuth", Next: "x"}, {Cluster: "c", Node: "n-5", Reason: "BMCUnreachable", Next: "x"}, {Cluster: "c", Node: "n-9", Reason: "BMCAuth", Next: "x"}}
	explainBlocked(blocked, fleet)
	assert.Equal(t, []string{nextOfAccount(&file), "x", "x"}, []string{blocked[0].Next, blocked[1].Next, blocked[2].Next})
}

// slowly is oneHost, for which it takes a second to say what forbids it.
type slowly struct {
	oneHost
	asked *atomic.Int32
}

func (s slowly) Forbidden(context.Context, hosts.Subject) []reason.Refusal {
	s.asked.Add(1)
	time.Sleep(time.Second)
	return nil
}

// SubjectOf implements sweep.Engine: whoever looks at one BMC finds none.
func (slowly) SubjectOf(context.Context, string, string) (hosts.Subject, error) {
	return hosts.Subject{}, &reason.Refusal{Reason: reason.NoHost}
}

// TestSurveysAreShared: who asks while the BMCs are surveyed, or soon after, gets that survey, and nobody one that is older than three times what it took, or than the last order.
func TestSurveysAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		s := sweep.New(sweep.Options{Engine: slowly{asked: &asked}, Concurrency: 1})
		c := control{sweep: s, surveys: newSurveys(), events: event.NewStream()}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := c.surveyBMCs(ctx)
		require.ErrorContains(t, err, "has not been read")
		var work sync.WaitGroup
		defer work.Wait()
		work.Go(func() { assert.NoError(t, s.Run(ctx)) })
		synctest.Wait()
		for _, want := range []int32{1, 2} {
			var asking sync.WaitGroup
			for range 3 {
				asking.Go(func() {
					found, err := c.surveyBMCs(ctx)
					assert.NoError(t, err)
					assert.Len(t, found.devices, 1)
				})
			}
			asking.Wait()
			time.Sleep(2900 * time.Millisecond)
			must.Do(c.surveyBMCs(ctx))(t)
			assert.Equal(t, want, asked.Load())
			time.Sleep(200 * time.Millisecond)
			require.NoError(t, c.surveys.making.Acquire(ctx, 1))
			assert.Empty(t, c.surveys.last.devices, "it is not kept")
			c.surveys.making.Release(1)
		}
		must.Do(c.surveyBMCs(ctx))(t)
		asked.Store(0)
		_, err = c.LookAtBMCs(ctx, wire.Order{Verb: wire.TestBMC, Cluster: "prod", Node: "n-1"})
		require.Error(t, err)
		must.Do(c.surveyBMCs(ctx))(t)
		assert.EqualValues(t, 1, asked.Load(), "who looked at a BMC sees what was found")
		_, err = c.Do(ctx, wire.Order{Verb: "mend"})
		require.Error(t, err)
		must.Do(c.surveyBMCs(ctx))(t)
		must.Do(c.surveyBMCs(ctx))(t)
		assert.EqualValues(t, 2, asked.Load(), "an order may have changed what forbids a fence")
		cancel()
	})
}

// fewHosts are hosts of which some are forbidden to switch. It counts who is asked about.
type fewHosts struct {
	oneHost
	forbidden map[string]reason.Code // by Node; "" for none
	mu        *sync.Mutex
	asked     map[string]int
}

func (f fewHosts) Inventory(context.Context) iter.Seq[hosts.Subject] {
	return func(yield func(hosts.Subject) bool) {
		for node := range f.forbidden {
			s := f.subject()
			s.Node, s.Host.Name = node, "prod/"+node
			if !yield(s) {
				return
			}
		}
	}
}

func (f fewHosts) Forbidden(_ context.Context, s hosts.Subject) []reason.Refusal {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[s.Node]++
	if code := f.forbidden[s.Node]; code != "" {
		return []reason.Refusal{{Reason: code}}
	}
	return nil
}

// TestOnlyDevicesInQuestionAreLookedAt: nobody looks at each host to answer about one, and those that are not dependable are known from the survey.
func TestOnlyDevicesInQuestionAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fewHosts{forbidden: map[string]reason.Code{"good": "", "twin": reason.DuplicateHost, "own": reason.OwnHost}, mu: &sync.Mutex{}, asked: map[string]int{}}
		s := sweep.New(sweep.Options{Engine: f, Concurrency: 1})
		c := control{sweep: s, surveys: newSurveys()}
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		work.Go(func() { assert.NoError(t, s.Run(ctx)) })
		synctest.Wait()
		for _, k := range []struct {
			of    wire.BMCFilter
			want  []string
			asked map[string]int
		}{
			{wire.BMCFilter{Of: "good"}, []string{"good"}, map[string]int{"good": 1}},
			{wire.BMCFilter{}, []string{"good", "own", "twin"}, map[string]int{"good": 1, "own": 1, "twin": 1}},
			{wire.BMCFilter{Undependable: true}, []string{"twin"}, map[string]int{"good": 1, "own": 2, "twin": 2}},
		} {
			clear(f.asked)
			var got []string
			for _, b := range must.Do(c.BMCs(ctx, k.of))(t).BMCs {
				got = append(got, b.Node)
			}
			assert.Equal(t, k.want, got)
			assert.Equal(t, k.asked, f.asked)
			time.Sleep(time.Minute)
		}
	})
}
