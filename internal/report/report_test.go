package report

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
)

func TestWholeCourse(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.begin("r-1", powerCycle())
		for _, s := range []remediate.Step{remediate.DeleteNode, remediate.PowerOn, remediate.AwaitNode, remediate.RestoreNode, remediate.Done} {
			time.Sleep(time.Minute)
			change := func(*remediate.Run) {}
			if s == remediate.PowerOn {
				change = isolated
			}
			d.enter("r-1", s, change)
		}
		course := []string{"Normal HostPoweredOff", "Normal NodeDeleted", "Normal HostPoweredOn", "Normal NodeRegistered", "Normal RemediationFinished"}
		assert.Equal(t, append([]string{"Normal RemediationStarted"}, course...), d.on("Node"))
		assert.Equal(t, append([]string{"Normal ExternalAnnotationAdded"}, course...), d.on("Machine"))
		assert.Equal(t, []string{"Normal RemediationStarted", "Normal RemediationFinished"}, d.on("MachineHealthCheck"))
		for _, n := range d.noted() {
			want := map[string]object{"Node": {APIVersion: "v1", Kind: "Node", Name: "n", UID: "n"}, "Machine": objectsOf(target)[Machine], "MachineHealthCheck": machineCheck}[n.Kind]
			assert.Equal(t, want, object{APIVersion: n.APIVersion, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name, UID: n.UID}, "the UID by which `kubectl describe` searches")
			assert.Contains(t, n.Message, "run r-1 of Node n: ")
			assert.Equal(t, []string{"Remediate", "f-1"}, []string{n.Action, n.Instance})
		}
		assert.Contains(t, d.noted()[0].Message, "Ready=Unknown for 5m")
	})
}

// What says that a host is off, or on, ends with the course of the run.
func TestEventsTellTheCourse(t *testing.T) {
	r := New(Options{Course: func(run string, from, to time.Time) []string { return []string{"Off sent 13:48:14Z", run} }})
	found := []news{{reason: hostPoweredOff, message: "the host is off"}, {reason: nodeDeleted, message: "the Node is deleted"}}
	r.addCourse(found, event.Event{Step: remediate.DeleteNode}, remediate.Run{ID: "r-1"})
	assert.Equal(t, "the host is off; Off sent 13:48:14Z; r-1", found[0].message)
	assert.Equal(t, "the Node is deleted", found[1].message)
}

// A run that an object asked for is told on that object, and where it is.
func TestRequestIsToldOfItsRun(t *testing.T) {
	for _, apart := range []bool{false, true} {
		atDesk(t, func(t *testing.T, d *desk) {
			r := powerCycle()
			r.CheckID = "FencedRemediation.fenced.io ns/m"
			r.Request = &remediate.Request{Kind: "FencedRemediation", Namespace: "ns", Name: "m", UID: "request-1", OnManagementAPI: apart}
			d.begin("r", r)
			d.enter("r", remediate.DeleteNode)
			d.enter("r", remediate.Done)
			assert.Equal(t, []string{"Normal RemediationStarted", "Normal RemediationFinished"}, d.on("FencedRemediation"))
			for _, n := range d.noted() {
				if n.Kind == "FencedRemediation" {
					assert.Equal(t, []string{"fenced.io/v1alpha1", "ns", "m", "request-1"}, []string{n.APIVersion, n.Namespace, n.Name, n.UID})
					assert.Equal(t, apart, n.OnManagementAPI)
				}
			}
		})
	}
	_, is := requestOf(remediate.Run{Request: &remediate.Request{Kind: "Machine", Name: "m"}})
	assert.False(t, is, "an annotated Machine is told as the Machine of the run")
}

func TestCoursesOfOtherKinds(t *testing.T) {
	capi := target
	capi.MachineAPI = "cluster.x-k8s.io/v1beta2"
	nodeless := target
	nodeless.Node, nodeless.NodeUID = "", ""
	for _, c := range []struct {
		name    string
		run     func(*remediate.Run)
		course  func(d *desk)
		node    []string
		machine []string
	}{
		{
			name: "tainted", run: func(r *remediate.Run) { r.Isolation = remediate.IsolateTaint },
			course: func(d *desk) { d.enter("r", remediate.DeleteNode); d.enter("r", remediate.PowerOn, isolated) },
			node:   []string{"Normal RemediationStarted", "Normal HostPoweredOff", "Normal AddOutOfServiceTaint"},
		},
		{
			name: "off only", course: func(d *desk) {
				d.enter("r", remediate.DeleteNode)
				d.enter("r", remediate.Held, isolated, withReason("OperatorOff", "fenced with --off-only"))
			},
			node: []string{"Normal RemediationStarted", "Normal HostPoweredOff", "Normal NodeDeleted", "Warning RemediationHeld"},
		},
		{
			name: "given back", course: func(d *desk) {
				d.enter("r", remediate.PowerOn, withReason("NodeAlive", "alive"))
				d.enter("r", remediate.Aborted, withReason("NodeAlive", "alive"))
			},
			node: []string{"Normal RemediationStarted", "Normal PoweringOn", "Warning RemediationAborted"},
		},
		{
			name: "another level and another attempt", course: func(d *desk) {
				d.enter("r", remediate.PowerOff)
				d.enter("r", remediate.DeleteNode)
				d.enter("r", remediate.PowerOff) // reads On again
				d.enter("r", remediate.Waiting, withReason("PowerOffFailed", "silent"))
			},
			node: []string{"Normal RemediationStarted", "Normal PoweringOff", "Normal HostPoweredOff", "Normal PoweringOff", "Warning RemediationWaiting"},
		},
		{
			name: "the second level on the way back", course: func(d *desk) {
				d.enter("r", remediate.DeleteNode)
				d.enter("r", remediate.PowerOn, isolated)
				d.enter("r", remediate.PowerOn)
				d.enter("r", remediate.AwaitNode)
				d.enter("r", remediate.RestoreNode)
				d.enter("r", remediate.AwaitNode) // the Node went away
			},
			node: []string{"Normal RemediationStarted", "Normal HostPoweredOff", "Normal NodeDeleted", "Normal PoweringOn", "Normal HostPoweredOn", "Normal NodeRegistered"},
		},
		{
			name: "reprovisioned", course: func(d *desk) { d.enter("r", remediate.Reprovision); d.enter("r", remediate.Reprovisioned) },
			node: []string{"Normal RemediationStarted", "Normal ReplacingMachine", "Normal MachineDeleted"},
		},
		{
			name: "handed over", run: func(r *remediate.Run) { r.Strategy, r.Target = remediate.DeleteMachine, capi },
			course: func(d *desk) {
				d.emit(event.Event{Type: event.Failed, Run: "r", Action: remediate.DeleteTargetMachine, Message: "conflict"})
				d.enter("r", remediate.Reprovisioned)
			},
			node:    []string{"Normal RemediationStarted", "Warning MachineDeletionFailed", "Normal MachineMarkedUnhealthy"},
			machine: []string{"Normal RemediationStarted", "Warning MachineDeletionFailed", "Normal MachineMarkedUnhealthy"},
		},
		{
			name: "a Machine without a Node", run: func(r *remediate.Run) { r.Target = nodeless },
			course: func(d *desk) {
				d.emit(event.Event{Type: event.Failed, Run: "r", Action: remediate.SendOff, Message: "no answer"})
				d.emit(event.Event{Type: event.Failed, Run: "r", Message: "save the run: the disk is full"})
			},
			machine: []string{"Normal ExternalAnnotationAdded", "Warning ActionFailed"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			atDesk(t, func(t *testing.T, d *desk) {
				r := powerCycle()
				if c.run != nil {
					c.run(&r)
				}
				d.begin("r", r)
				c.course(d)
				assert.Equal(t, c.node, d.on("Node"))
				if c.machine != nil {
					assert.Equal(t, c.machine, d.on("Machine"))
				}
			})
		})
	}
}

// A record that is ahead of an event does not change what the event reports.
func TestRecordAheadOfItsEvents(t *testing.T) {
	r := remediate.Begin(powerCycle(), time.Now())
	at := r.Started
	for _, s := range []remediate.Step{remediate.DeleteNode, remediate.PowerOn, remediate.AwaitNode, remediate.PowerOn} {
		r.Steps[len(r.Steps)-1].Ended = at.Add(time.Second)
		at = at.Add(time.Second)
		r.Steps = append(r.Steps, remediate.Visit{Step: s, Started: at})
		if s == remediate.PowerOn && r.Isolated.IsZero() {
			r.Isolated = at
		}
	}
	r.Step = remediate.PowerOn
	reasons := func(after time.Duration) (list []string) {
		for _, n := range ofRun(event.Event{Type: event.Stepped, Step: remediate.PowerOn, At: r.Started.Add(after)}, r, nil) {
			list = append(list, n.reason)
		}
		return list
	}
	assert.Equal(t, []string{nodeDeleted}, reasons(2*time.Second))
	assert.Equal(t, []string{poweringOn}, reasons(4*time.Second))
}

func TestRefusalsAndChecks(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.emit(event.Event{Type: event.Refused, Node: "n", Reason: reason.ShortCircuit, Check: "MachineHealthCheck.x ns/workers", About: machineCheck, Message: "limit: 3 of 5"})
		d.emit(event.Event{Type: event.Refused, Machine: "ns/m", Reason: reason.NoController, Message: "no owner"})
		d.emit(event.Event{Type: event.Refused, Node: "n", Reason: reason.NotUnhealthy, Message: "the check does not ask for this action now"}) // nothing was skipped
		assert.Equal(t, []string{"Warning RemediationSkipped", "Normal SkippedNoController"}, d.on("Node"), "the Machine's Node is known")
		assert.Equal(t, []string{"Warning RemediationSkipped", "Normal SkippedNoController"}, d.on("Machine"))
		assert.Equal(t, "ShortCircuit: limit: 3 of 5; asked for by MachineHealthCheck.x ns/workers", d.noted()[0].Message)
		assert.Empty(t, d.on("MachineHealthCheck"))

		ofFile := machineCheck
		ofFile.UID = ""
		for _, e := range []event.Event{
			{Type: event.LimitClosed, Reason: reason.ShortCircuit, About: machineCheck}, {Type: event.LimitOpened, About: machineCheck},
			{Type: event.CheckChanged, Reason: reason.InvalidCheck, About: machineCheck}, {Type: event.CheckChanged, About: machineCheck},
			{Type: event.CheckChanged, Reason: reason.NotCovered, About: machineCheck}, {Type: event.LimitClosed, About: ofFile},
			{Type: event.Ordered, Node: "n"}, {Type: event.RefusalEnded, Node: "n"},
		} {
			d.emit(e)
		}
		assert.Equal(t, []string{"Warning RemediationRestricted", "Normal RemediationAllowed", "Warning Disabled", "Normal Enabled"}, d.on("MachineHealthCheck"))
		for _, n := range d.noted() {
			assert.Equal(t, []string{"Evaluate", "f-1"}, []string{n.Action, n.Instance})
		}
		assert.Len(t, d.on("Node"), 2)
	})
}

// Of several instances, only the one that acts reports what is not done. What is found at the
// start, before it owns the cluster, it reports then.
func TestWhoReports(t *testing.T) {
	closed := event.Event{Type: event.LimitClosed, About: machineCheck}
	atDesk(t, func(t *testing.T, d *desk) {
		d.change(func(d *desk) { d.state.Acts = false })
		d.emit(closed)
		time.Sleep(20 * time.Second)
		require.Empty(t, d.noted())
		d.change(func(d *desk) { d.state.Acts = true })
		time.Sleep(2 * tickEvery)
		assert.Equal(t, []string{"Warning RemediationRestricted"}, d.on("MachineHealthCheck"))
	})
	atDesk(t, func(t *testing.T, d *desk) { // what is never reported takes no place
		d.change(func(d *desk) { d.state.Acts = false })
		d.emit(closed)
		time.Sleep(tickEvery) // it is read
		for range 2 * maxWaiting {
			d.events.Emit(event.Event{Type: event.Failed, Cluster: clusterName, Message: "read"})
		}
		time.Sleep(tickEvery)
		d.change(func(d *desk) { d.state.Acts = true })
		time.Sleep(2 * tickEvery)
		assert.Equal(t, []string{"Warning RemediationRestricted"}, d.on("MachineHealthCheck"))
	})
	atDesk(t, func(t *testing.T, d *desk) { // another instance acts
		d.change(func(d *desk) { d.state.Acts = false })
		for range 2 * maxWaiting {
			d.emit(closed)
		}
		time.Sleep(2 * waitFor)
		d.change(func(d *desk) { d.state.Acts = true })
		time.Sleep(2 * waitFor)
		assert.Empty(t, d.noted())
	})
	atDesk(t, func(t *testing.T, d *desk) { // it only observes: a person's run is reported, and nothing else
		d.change(func(d *desk) { d.state.Armed = false })
		d.emit(closed)
		d.emit(event.Event{Type: event.Refused, Node: "n", Reason: reason.Observing})
		d.begin("r", powerCycle())
		assert.Empty(t, d.on("MachineHealthCheck")[1:])
		assert.Equal(t, []string{"Normal RemediationStarted"}, d.on("Node"))
	})
}

// In mode respond nobody has asked for what a check of fenced finds, until a request does.
func TestUnrequestedIsNotReported(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.emit(event.Event{Type: event.Refused, Node: "n", Reason: reason.Observing})
		d.emit(event.Event{Type: event.Refused, Node: "n", Reason: reason.Contested})
		time.Sleep(2 * tickEvery)
		assert.Equal(t, []string{"Warning RemediationSkipped"}, d.on("Node"))
		assert.Contains(t, d.noted()[0].Message, "Contested")
	})
}

// A reader that is behind loses the oldest events, and counts them.
func TestLostEventsAreCounted(t *testing.T) {
	d := &desk{board: &board{}, events: event.NewStream()}
	r := New(Options{Events: d.events, State: d.now})
	d.events.Emit(event.Event{})
	all := must.Do(d.events.After(t.Context(), 0))(t)
	r.readEvents(all, time.Now())
	require.Zero(t, r.Lost())
	for range 5000 {
		d.events.Emit(event.Event{})
	}
	all = must.Do(d.events.After(t.Context(), 1))(t)
	r.readEvents(all, time.Now())
	assert.Equal(t, uint64(5000-len(all)), r.Lost())
	assert.NotZero(t, r.Lost())
}

// Each reason that is reported has its row, and none twice.
func TestTable(t *testing.T) {
	f := must.Do(parser.ParseFile(token.NewFileSet(), "table.go", nil, 0))(t)
	word := regexp.MustCompile(`^"([A-Z]\w+)"$`)
	var reasons []string
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Type == nil && len(spec.Values) == 1 {
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && word.MatchString(lit.Value) {
				reasons = append(reasons, word.FindStringSubmatch(lit.Value)[1])
			}
		}
		return true
	})
	var inTable []string
	for _, r := range Table() {
		inTable = append(inTable, r.Reason)
		assert.NotEmpty(t, r.On, r.Reason)
		assert.NotEmpty(t, r.Means, r.Reason)
	}
	assert.ElementsMatch(t, reasons, inTable)
}
