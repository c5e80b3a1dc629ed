package sweep

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/must"
)

// A description is many questions. The class of a BMC rests on it, so a slow one
// has time, and one that could not be finished is seen and asked for again soon.
func TestASlowDescriptionIsWaitedFor(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.description.Model, m.tells = "R650", 8*readTimeout
	w.run(t, func(t *testing.T) {
		w.wait(3 * every)
		assert.Equal(t, "R650", w.result(t, 1).Description.Model)
		assert.Equal(t, m.takes, w.result(t, 1).Latency, "of the reading alone")
		require.Equal(t, 1, m.described)

		w.change(func() { m.tells = time.Hour })
		w.wait(describeEvery)
		r := w.result(t, 1)
		assert.Contains(t, r.DescribeProblem, "describe")
		assert.Equal(t, "R650", r.Description.Model, "as it was told before")
		assert.True(t, r.Dependable)
		before := m.described
		w.wait(describeRetry + 3*every)
		assert.Greater(t, m.described, before)

		w.change(func() { m.tells = 0 })
		w.wait(describeRetry + 3*every)
		assert.Empty(t, w.result(t, 1).DescribeProblem)
	})
}

func TestAnOrderWaitsForASlowDescription(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.description.Model, m.tells = "R650", longTimeout-time.Second
	w.run(t, func(t *testing.T) {
		got := must.Do(w.sweep.Audit(t.Context(), "prod", "n-1"))(t)
		assert.Equal(t, "R650", got[0].Description.Model)
		assert.Empty(t, got[0].DescribeProblem)
	})
}

func TestAnOrderedLookIsUrgentAndFresh(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.err = failing(bmc.KindAuth)
	m.weak = []bmc.Finding{{Code: bmc.FindingCipherZero, Message: "suite 0"}}
	w.run(t, func(t *testing.T) {
		w.wait(2 * every)
		require.False(t, w.result(t, 1).Dependable)
		w.change(func() { m.err = nil; m.description.Model = "R650" })
		got := must.Do(w.sweep.Test(t.Context(), "prod", "n-1"))(t)
		require.Len(t, got, 1)
		assert.Equal(t, 1, w.urgent)
		assert.True(t, got[0].Dependable, "one good look is enough")
		assert.Equal(t, "R650", got[0].Description.Model)
		assert.Zero(t, m.audits)
		require.Len(t, w.events, 2, "that it is dependable again is told")
		assert.Less(t, time.Until(got[0].Next), every+every/5+1, "the long pause is over")

		got = must.Do(w.sweep.Audit(t.Context(), "prod", "n-1"))(t)
		assert.Equal(t, bmc.FindingCipherZero, got[0].Findings[0].Code)
		assert.Zero(t, m.open)
	})
}

func TestAnOrderedLookThatCannotBeDoneSaysSo(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	w.run(t, func(t *testing.T) {
		w.wait(2 * every)
		w.change(func() { m.err = fmt.Errorf("read: %w", power.ErrInUse) })
		got := must.Do(w.sweep.Test(t.Context(), "prod", "n-1"))(t)
		assert.Contains(t, got[0].Problem, "in use", "an old answer is not passed off as a fresh one")

		w.change(func() { m.err, m.auditErr = nil, failing(bmc.KindSessions) })
		got = must.Do(w.sweep.Audit(t.Context(), "prod", "n-1"))(t)
		assert.Empty(t, got[0].Problem)
		assert.Contains(t, got[0].AuditProblem, "sessions", "no finding is not a clean bill")

		w.change(func() { m.auditErr = fmt.Errorf("audit: %w", power.ErrInUse) })
		got = must.Do(w.sweep.Audit(t.Context(), "prod", "n-1"))(t)
		assert.Contains(t, got[0].AuditProblem, "in use")

		_, err := w.sweep.Test(t.Context(), "prod", "n-9")
		var refusal *reason.Refusal
		require.ErrorAs(t, err, &refusal)
	})
}

func TestAnOrderIsBounded(t *testing.T) {
	w := newWorld()
	w.host(1).hangs = true
	w.run(t, func(t *testing.T) {
		began := time.Now()
		got := must.Do(w.sweep.Audit(t.Context(), "prod", "n-1"))(t)
		assert.Equal(t, readTimeout, time.Since(began), "nothing more is asked of one that is silent")
		assert.Equal(t, StateFailed, got[0].State)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.sweep.Test(ctx, "prod", "n-1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1, w.result(t, 1).Failures, "nobody waited for the second look")
	})
}

func TestDescribedHourlyAuditedDaily(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	w.run(t, func(t *testing.T) {
		w.wait(24*time.Hour - time.Minute)
		assert.InDelta(t, 24, m.described, 2)
		assert.Equal(t, 1, m.audits)
		before := m.described
		w.change(func() { m.uuid = "4c4c4544-0042-3510-8052-000000000001" })
		w.wait(3 * every)
		assert.Greater(t, m.described, before, "another machine is described at once")
	})
}

// The engine knows the hosts of every cluster, and that one may be seen from two.
func TestADuplicateIsAFinding(t *testing.T) {
	w := newWorld()
	w.host(1)
	w.host(2)
	w.twin = "n-2"
	w.run(t, func(t *testing.T) {
		w.wait(2 * every)
		assert.Empty(t, w.result(t, 1).Findings)
		require.Len(t, w.result(t, 2).Findings, 1)
		assert.Equal(t, bmc.FindingDuplicate, w.result(t, 2).Findings[0].Code)
		assert.Contains(t, w.result(t, 2).Findings[0].Message, "prod/n-9")
	})
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// looked is a device that was looked at and has no weakness; spoil adds one.
func looked(spoil func(e *entry, d *bmc.Device)) *entry {
	d := bmc.Device{Driver: bmc.DriverRedfish, Username: "fence", Password: bmc.NewSecret("a long random one"),
		Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolRedfish, Host: "bmc", Port: 443}}
	e := &entry{place: -1, results: &results{last: lastPoll{At: noon, Identity: guard.IdentityMatches}, description: &bmc.Description{}}}
	spoil(e, &d)
	e.subject = newSubject(hosts.Subject{Cluster: "prod", Node: "n-1", Host: bmc.Host{Name: "prod/n-1", Levels: []bmc.Level{{Devices: []bmc.Device{d}}}}}, nil)
	return e
}

func TestWeaknesses(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(e *entry, d *bmc.Device)
		want  []bmc.FindingCode
	}{
		"none":               {spoil: func(*entry, *bmc.Device) {}},
		"a vendor's default": {func(_ *entry, d *bmc.Device) { d.Password = bmc.NewSecret("calvin") }, []bmc.FindingCode{bmc.FindingDefaultPassword}},
		"the user's name":    {func(_ *entry, d *bmc.Device) { d.Password = bmc.NewSecret("FENCE") }, []bmc.FindingCode{bmc.FindingDefaultPassword}},
		"no password":        {func(_ *entry, d *bmc.Device) { d.Password = bmc.Secret{} }, []bmc.FindingCode{bmc.FindingDefaultPassword}},
		"an unread password": {func(_ *entry, d *bmc.Device) { d.Password, d.Unusable = bmc.Secret{}, assert.AnError }, nil},
		"lower assurance":    {func(_ *entry, d *bmc.Device) { d.Driver = bmc.DriverBMCLib }, []bmc.FindingCode{bmc.FindingLowerAssurance}},
		"a BMC's agent":      {func(_ *entry, d *bmc.Device) { d.Driver, d.Agent = bmc.DriverFenceAgent, "fence_ilo4_ssh" }, []bmc.FindingCode{bmc.FindingLowerAssurance}},
		"no UUID, enrolled":  {func(_ *entry, d *bmc.Device) { d.Enrolled = true }, []bmc.FindingCode{bmc.FindingLowerAssurance}},
		"a UUID to ignore":   {func(_ *entry, d *bmc.Device) { d.IgnoreUUID = true }, []bmc.FindingCode{bmc.FindingLowerAssurance}},
		"an outlet":          {func(_ *entry, d *bmc.Device) { d.Driver, d.Agent = bmc.DriverFenceAgent, "fence_apc_snmp" }, nil},
		"not enrolled": {func(e *entry, d *bmc.Device) {
			d.Driver, d.Password, e.last.Identity = bmc.DriverFenceAgent, bmc.Secret{}, guard.IdentityUnproven
		}, []bmc.FindingCode{bmc.FindingNotEnrolled}},
		"nobody vouched": {func(e *entry, d *bmc.Device) {
			d.Driver, e.last.Identity = bmc.DriverFenceAgent, guard.IdentityNotEnrolled
		}, []bmc.FindingCode{bmc.FindingNotEnrolled}},
		"another machine": {func(e *entry, _ *bmc.Device) { e.last.Identity = guard.IdentityDiffers }, []bmc.FindingCode{bmc.FindingIdentity}},
		"no identity":     {func(e *entry, _ *bmc.Device) { e.last.Identity = guard.IdentityUnproven }, []bmc.FindingCode{bmc.FindingIdentity}},
		"no answer":       {func(e *entry, _ *bmc.Device) { e.last.Identity, e.last.Err = "", assert.AnError }, nil},
		"plain http":      {func(_ *entry, d *bmc.Device) { d.Endpoint.Plain = true }, []bmc.FindingCode{bmc.FindingCertificateTrust}},
		"not verified":    {func(_ *entry, d *bmc.Device) { d.TLS.InsecureSkipVerify = true }, []bmc.FindingCode{bmc.FindingCertificateTrust}},
		"pinned":          {func(_ *entry, d *bmc.Device) { d.TLS = bmc.TLS{InsecureSkipVerify: true, PinSHA256: "x"} }, nil},
		"the clock": {func(e *entry, _ *bmc.Device) {
			e.description.Clock, e.description.ClockAt = noon.Add(-6*time.Minute), noon
		}, []bmc.FindingCode{bmc.FindingClock}},
		"no clock": {func(e *entry, _ *bmc.Device) {
			e.description.Clock, e.description.ClockAt = time.Unix(0, 0), noon
		}, []bmc.FindingCode{bmc.FindingClock}},
		"an agent that verifies nothing": {func(_ *entry, d *bmc.Device) {
			d.Driver, d.Agent, d.Parameters = bmc.DriverFenceAgent, "fence_vmware_rest", map[string]string{"ssl_insecure": "1"}
		}, []bmc.FindingCode{bmc.FindingCertificateTrust}},
		"a fair clock": {func(e *entry, _ *bmc.Device) {
			e.description.Clock, e.description.ClockAt = noon.Add(5*time.Minute), noon
		}, nil},
		"restores power":  {func(e *entry, _ *bmc.Device) { e.description.RestorePolicy = "previous" }, []bmc.FindingCode{bmc.FindingRestorePolicy}},
		"stays off":       {func(e *entry, _ *bmc.Device) { e.description.RestorePolicy = "always-off" }, nil},
		"ends in 29 days": {func(e *entry, _ *bmc.Device) { e.description.CertificateUntil = noon.Add(29 * 24 * time.Hour) }, []bmc.FindingCode{bmc.FindingCertificateExpired}},
		"ends in 31 days": {func(e *entry, _ *bmc.Device) { e.description.CertificateUntil = noon.Add(31 * 24 * time.Hour) }, nil},
		"audited": {func(e *entry, d *bmc.Device) {
			d.TLS.InsecureSkipVerify = true
			e.findings = []bmc.Finding{{Code: bmc.FindingCipherZero}, {Code: bmc.FindingCertificateTrust}}
		}, []bmc.FindingCode{bmc.FindingCipherZero, bmc.FindingCertificateTrust}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []bmc.FindingCode
			for _, f := range looked(tc.spoil).weaknesses(noon) {
				got = append(got, f.Code)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestNoFindingOrResultHoldsAPassword(t *testing.T) { // I25
	for password := range defaultPasswords {
		e := looked(func(_ *entry, d *bmc.Device) { d.Password = bmc.NewSecret(password) })
		r := e.result(noon)
		require.Equal(t, bmc.FindingDefaultPassword, r.Findings[0].Code)
		for _, word := range strings.Fields(fmt.Sprint(r.Findings)) {
			if len(password) > 5 && password != "password" { // some are English words
				assert.NotEqual(t, password, strings.Trim(word, ":,"))
			}
		}
	}
	e := looked(func(_ *entry, d *bmc.Device) { d.Password = bmc.NewSecret("hunter2hunter2") })
	shown := e.result(noon)
	assert.NotContains(t, fmt.Sprintf("%+v %#v", shown, shown), "hunter2hunter2")
}

// The newest result of a host is the one that bmc list shows.
func TestLastChecksAreThoseOfTheList(t *testing.T) {
	w := newWorld()
	w.host(1)
	w.host(2).err = &bmc.Error{Kind: bmc.KindAuth, Err: assert.AnError}
	w.host(3).uuid = "4c4c4544-0042-3510-8052-ffffffffffff"
	w.run(t, func(t *testing.T) {
		w.wait(time.Millisecond)
		require.Len(t, w.sweep.LastChecks("prod", "prod/n-1"), 1)
		assert.Zero(t, w.sweep.LastChecks("prod", "prod/n-1")[0].At, "not checked yet")
		w.wait(5 * time.Minute)
		assert.Equal(t, []string{"", ""}, []string{w.result(t, 1).User, w.result(t, 1).PasswordFrom}, "its account is accepted")
		assert.Equal(t, []string{"fence", "file /etc/fenced/bmc"}, []string{w.result(t, 2).User, w.result(t, 2).PasswordFrom})
		for n, want := range map[int]hosts.LastCheck{
			1: {Power: bmc.On, Identity: guard.IdentityMatches, Took: w.host(1).takes}, // what counts is when it was asked
			2: {Reason: "BMCAuth", Took: w.host(2).takes},
			3: {Power: bmc.On, Identity: guard.IdentityDiffers, Took: w.host(3).takes},
		} {
			r := w.result(t, n)
			last := w.sweep.LastChecks("prod", r.Host)
			require.Len(t, last, 1)
			got := last[0]
			assert.Equal(t, want, hosts.LastCheck{Took: got.Took, Power: got.Power, Identity: got.Identity, Reason: got.Reason}, r.Host)
			assert.Equal(t, r.Checked, got.At)
			assert.Equal(t, r.UUID, got.UUID)
		}
		assert.Empty(t, w.sweep.LastChecks("dev", "prod/n-1"))

		on := map[int]time.Time{}
		for n := range 3 {
			on[n+1] = w.sweep.LastChecks("prod", fmt.Sprintf("prod/n-%d", n+1))[0].LastOn
		}
		assert.Equal(t, map[int]time.Time{1: w.result(t, 1).Checked, 2: {}, 3: {}}, on, "another machine's says nothing")
		w.host(1).err = &bmc.Error{Kind: bmc.KindUnreachable, Err: assert.AnError}
		w.wait(5 * time.Minute)
		last := w.sweep.LastChecks("prod", "prod/n-1")[0]
		assert.Equal(t, []any{bmc.Unknown, true}, []any{last.Power, last.LastOn.Equal(on[1]) || last.LastOn.After(on[1])}, "it has been On, whatever became of the BMC")
	})
}

// A BMC that answers, and that nothing proves to be the Node's, is not dependable: a fence would be
// refused. Of a host without a Node, and where identities are not compared, that says nothing.
func TestUnprovenIdentityIsNotDependable(t *testing.T) {
	w := newWorld()
	for n := range 3 {
		w.host(n + 1).uuid = ""
	}
	w.subjects[1].Host.IdentityMode = "off"
	w.subjects[2].Node = ""
	w.run(t, func(t *testing.T) {
		w.wait(5 * time.Minute)
		unproven := w.result(t, 1)
		assert.False(t, unproven.Dependable)
		assert.Equal(t, reason.IdentityUnknown, unproven.Reason)
		assert.Equal(t, StateUnproven, unproven.State)
		assert.True(t, w.result(t, 2).Dependable)
		_, doubtful := w.sweep.Tally()
		assert.Equal(t, map[string]int{"prod": 1}, doubtful)
	})
}

// An empty list would read as that all is well.
func TestWhatWasNotSeenYetIsNotHealthy(t *testing.T) {
	w := newWorld()
	_, err := New(Options{Engine: w, Concurrency: 1}).Results(t.Context(), "")
	var refusal *reason.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, reason.NotSynced, refusal.Reason)

	w.subjects = []hosts.Subject{{Cluster: "prod", Err: &reason.Refusal{Reason: reason.NotSynced, Message: "not seen whole"}}}
	w.run(t, func(t *testing.T) {
		w.wait(time.Second)
		all := w.results(t, "")
		require.Len(t, all, 1)
		assert.False(t, all[0].Dependable)
		assert.Equal(t, reason.NotSynced, all[0].Reason)
		assert.Equal(t, StateUnchecked, all[0].State)
		_, bad := w.sweep.Tally()
		assert.Empty(t, bad, "nothing is known to be bad")

		w.change(func() { w.subjects = nil })
		w.host(1)
		w.wait(emptyRefresh)
		assert.Equal(t, "n-1", w.results(t, "")[0].Node, "it is looked at again soon")
	})
}

// A host that an order finds is listed at once, and once after the inventory is read again; one that is gone is not listed any more.
func TestSurveyHasEachHostOnce(t *testing.T) {
	w := newWorld()
	w.host(3)
	w.host(1)
	w.run(t, func(t *testing.T) {
		listed := func() (nodes []string) {
			require.NoError(t, w.sweep.Survey(t.Context(), func(r *Result) { nodes = append(nodes, r.Node) }))
			return nodes
		}
		w.wait(0)
		assert.Equal(t, []string{"n-3", "n-1"}, listed())
		w.host(2)
		must.Do(w.sweep.Test(t.Context(), "prod", "n-2"))(t)
		must.Do(w.sweep.Test(t.Context(), "prod", "n-2"))(t)
		assert.Equal(t, []string{"n-3", "n-1", "n-2"}, listed())
		w.change(func() { w.subjects = w.subjects[1:] })
		w.wait(every + time.Second)
		assert.Equal(t, []string{"n-1", "n-2"}, listed())
		w.change(func() { w.subjects = append(w.subjects, w.subjects[0]) })
		w.wait(every + time.Second)
		assert.Equal(t, []string{"n-1", "n-2"}, listed())
	})
}
