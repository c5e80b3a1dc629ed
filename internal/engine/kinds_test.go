package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// nodePolicy is a FencePolicy over all Nodes.
func nodePolicy() policy.Check {
	return policy.Check{
		Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "nodes", Selector: labels.Everything(), SelectsNodes: true,
		Strategy: policy.PowerCycleHosts, Source: "policies.d/a.yaml:3",
		Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
	}
}

// withPolicy puts a policy from a file in the place of the cluster's check.
func withPolicy(w *world, p policy.Check) func(*engine.Options) {
	w.pauseCheck()
	return func(o *engine.Options) { o.Clusters[0].FileChecks = []policy.Check{p} }
}

// handOver is a Cluster API check without a template, which this daemon judges.
func handOver(w *world) {
	w.ofClusterAPI()
	w.changeCheck(func(c *policy.Check) { c.Paused, c.Evaluator = true, "here" })
}

// A check may also change the limits of its own runs.
func TestNodeWithoutMachineIsFenced(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.dropMachines()
		p := nodePolicy()
		p.MaxAttempts, p.Deadlines.PowerOff = 7, 50*time.Second
		e := running(t, w, store, withPolicy(w, p))
		time.Sleep(6 * time.Minute)
		r := stands(t, e, remediate.Done)
		assert.Equal(t, 1, w.Isolations())
		assert.Empty(t, r.Target.Machine)
		assert.Equal(t, "nodes", r.Check)
		assert.Equal(t, "FencePolicy.fenced.io nodes in policies.d/a.yaml", r.CheckID, "not by line: files are edited")
		assert.Equal(t, 7, r.Limits.MaxAttempts)
		assert.Equal(t, 50*time.Second, r.Limits.OffDeadline)
	})
}

// A run finds its check again if the file of the check has more lines than before.
func TestRunFindsItsCheckAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff) // nothing takes effect, so each look must still justify it
		p := nodePolicy()
		_, _, stop := start(t, w, store, withPolicy(w, p))
		time.Sleep(untilOff)
		stop()
		p.Source = "policies.d/a.yaml:30"
		e := running(t, w, store, withPolicy(w, p))
		time.Sleep(5 * time.Second)
		assert.Equal(t, remediate.PowerOff, only(t, e).Step, only(t, e).Note)
	})
}

// A record that names a check and not its kind is of no check: nothing is switched because of it. // I4
func TestRecordWithoutTheIDOfItsCheckMatchesNone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := nodePolicy()
		w.dropMachines()
		r := remediate.Begin(remediate.Run{ID: "r1", Check: p.Key(), Strategy: remediate.PowerCycle, Isolation: remediate.IsolateDelete,
			Target: remediate.Target{Cluster: "c", Node: "n-1", NodeUID: "uid-1", BootID: "n-1-boot-1", SystemUUID: hostUUID, Host: "c/n-1"},
			Limits: remediate.Limits{OffDeadline: time.Minute, RunTimeout: 2 * time.Hour, APITimeout: time.Hour}}, time.Now())
		must.Do(state.SaveRun(t.Context(), store, r))(t)
		w.SetReadySince("Unknown", time.Now().Add(-time.Hour))
		e := running(t, w, store, withPolicy(w, p))
		time.Sleep(5 * time.Second)
		assert.Equal(t, remediate.Aborted, only(t, e).Step)
		assert.Contains(t, only(t, e).Note, "the check is gone")
		assert.Empty(t, w.Commands())
	})
}

// While a file of policies.d is refused nothing begins, and a run goes on whose check may be in that file: it is not withdrawn, and
// switches nothing before the check is known again.
func TestRunWhoseCheckIsInARefusedFileWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := nodePolicy()
		w.pauseCheck()
		w.dropMachines()
		open := remediate.Begin(remediate.Run{ID: "r1", Check: p.Key(), CheckID: cluster.CheckID(p.ID()), Strategy: remediate.PowerCycle, Isolation: remediate.IsolateDelete,
			Target: remediate.Target{Cluster: "c", Node: "n-1", NodeUID: "uid-1", BootID: "n-1-boot-1", SystemUUID: hostUUID, Host: "c/n-1"},
			Limits: remediate.Limits{OffDeadline: time.Hour, RunTimeout: 2 * time.Hour, APITimeout: time.Hour}}, time.Now())
		must.Do(state.SaveRun(t.Context(), store, open))(t)
		w.SetReadySince("Unknown", time.Now().Add(-time.Hour))
		e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].FilesRefused = "policies.d/a.yaml:4: spec.limt: unknown key" })
		time.Sleep(time.Minute)
		require.True(t, only(t, e).Open())
		assert.Equal(t, remediate.PowerOff, only(t, e).Step)
		assert.Empty(t, w.Commands())
		e.ApplyConfig.Policies("c", cluster.Files{Checks: []policy.Check{p}})
		time.Sleep(time.Minute)
		assert.NotEmpty(t, w.Commands())
	})
}

// The run begins with the look that admitted it. // I14
func TestMachineIsHandedOverToItsOwner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		handOver(w)
		before := -1 // looks before the Machine was handed over
		w.OnLook(func(looks int) {
			if w.HandedOver() == 0 {
				before = looks
			}
		})
		e := running(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		stands(t, e, remediate.Reprovisioned)
		assert.Equal(t, 1, w.HandedOver())
		assert.Equal(t, 1, before)
		assert.Empty(t, w.Deprovisioned(), "the owner deletes it")
		assert.Empty(t, w.Commands())
		assert.Zero(t, w.Isolations())
	})
}

// A Machine that no controller owns is not handed over, for nobody would replace it, nor is one while the manager of its API family
// is alive. // I14, I22
func TestMachineIsNotHandedOver(t *testing.T) {
	for code, change := range map[reason.Code]func(*world){
		reason.NoController: func(w *world) {
			w.eachMachine(func(m *policy.Machine) { m.ControllerOwner = policy.Owner{} })
		},
		reason.Contested: func(w *world) { w.setContested(remediate.Yes) },
	} {
		scene(t, string(code), func(t *testing.T, w *world, store *failingStore) {
			handOver(w)
			change(w)
			e := running(t, w, store, nil)
			time.Sleep(2 * time.Minute)
			assert.Empty(t, e.Runs("c"))
			assert.Zero(t, w.HandedOver())
			gate(t, e, code)
		})
	}
}

func TestOwnTemplateIsCarriedOutAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.changeCheck(func(c *policy.Check) {
			c.Strategy = policy.CreateRequests
			c.Template = &policy.Template{APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "t"}
		})
		e := running(t, w, store, nil)
		time.Sleep(6 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// every starts a window at a fixed rhythm.
type every time.Duration

func (d every) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(d)).Add(time.Duration(d))
}

// No event is needed to notice the end of a window.
func TestMaintenanceWindowPausesUntilItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := nodePolicy()
		p.Windows = []policy.Window{{Text: "@daily", Starts: every(24 * time.Hour), Duration: 4 * time.Hour}}
		e := running(t, w, store, withPolicy(w, p))
		time.Sleep(4*time.Hour - time.Second) // the bubble's clock begins at midnight
		require.Empty(t, e.Runs("c"))
		assert.Equal(t, time.Date(2000, 1, 1, 4, 0, 0, 0, time.UTC), gate(t, e, reason.Paused).Until.UTC())
		time.Sleep(3 * time.Second)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// In a view with the Nodes of another cluster the Node of every Machine is missing. These
// Nodes are not treated as absent. // I16
func TestNodesOfAnotherClusterAreNoAbsence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ChangeEntry(func(h *bmc.Host) { h.PinnedUUID = hostUUID })
		w.Do(func(s *fake.State) {
			for _, h := range s.Hosts {
				s.RemoveNode(h.Name)
				s.PutNode(fake.Node{Name: "foreign-" + h.Name, Labels: rack, Ready: "True"})
			}
		})
		e := running(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		untouched(t, w, e)
		gate(t, e, reason.NoNodesVisible)
	})
}

// controlPlaneOf makes n-1 a control-plane host among three members.
func controlPlaneOf(w *world, healthy bool) {
	w.Do(func(s *fake.State) {
		s.MakeControlPlane("n-1", "other-0", "other-1")
		s.Host("other-0").MemberSick = !healthy
	})
}

func TestControlPlaneIsFencedWithAQuorumToSpare(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		controlPlaneOf(w, true)
		e := running(t, w, store, nil)
		time.Sleep(6 * time.Minute)
		r := stands(t, e, remediate.Done)
		assert.True(t, r.ControlPlane)
		assert.Equal(t, remediate.IsolateDelete, r.Isolation, "OpenShift keeps etcd members apart from Nodes")
	})
}

// No label says what the hosts are, but the Pods of the members of etcd do: the quorum counts, and the Node is not
// deleted. // I12
func TestHostWithAMemberOfEtcdIsOfTheControlPlane(t *testing.T) {
	for _, sick := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.Do(func(s *fake.State) {
				for _, name := range []string{"n-1", "other-0", "other-1"} {
					s.Host(name).ControlPlane = true
					s.ChangeNode(name, func(*fake.Node) {}) // its Pod is seen
				}
				s.Host("other-0").MemberSick = sick
			})
			e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].ControlPlaneIsolation = remediate.IsolateTaint })
			time.Sleep(6 * time.Minute)
			if sick {
				assert.Empty(t, e.Runs("c"))
				gate(t, e, reason.QuorumLost)
				return
			}
			r := only(t, e)
			assert.True(t, r.ControlPlane)
			assert.Equal(t, remediate.IsolateTaint, r.Isolation)
			assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		})
	}
}

// A control-plane Node that has lost its label counts for nobody else. The status names it, and the command that
// labels it, until it has the label or none has. // I12
func TestUnlabelledControlPlaneIsToldInTheStatus(t *testing.T) {
	const label = "node-role.kubernetes.io/control-plane"
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Recover()
		names := []string{"n-1", "other-0", "other-1"}
		labelled := func(with bool, names ...string) {
			w.Do(func(s *fake.State) {
				for _, name := range names {
					s.Host(name).ControlPlane = true
					s.ChangeNode(name, func(n *fake.Node) {
						n.ControlPlane, n.Labels = with, map[string]string{}
						if with {
							n.Labels[label] = ""
						}
					})
				}
			})
			time.Sleep(10 * time.Second)
		}
		e, _, stop := start(t, w, store, nil)
		defer stop()
		labelled(false, names...)
		assert.Empty(t, e.Status()[0].Hint, "no Node has a label: the Pods count for all")
		labelled(true, "other-0")
		assert.Contains(t, e.Status()[0].Hint, "kubectl label node n-1 "+label+"=")
		assert.Contains(t, e.Status()[0].Hint, ": n-1, other-1. ")
		labelled(true, "n-1")
		assert.Contains(t, e.Status()[0].Hint, "kubectl label node other-1 "+label+"=")
		labelled(true, names...)
		assert.Empty(t, e.Status()[0].Hint)
	})
}

// The result of an uncached read about etcd decides. // I12
func TestControlPlaneWithoutQuorumIsLeftAlone(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			controlPlaneOf(w, false)
			code := reason.QuorumLost
			if unknown {
				w.Do(func(s *fake.State) { s.MembersUnknown = true })
				code = reason.QuorumUnknown
			}
			e := running(t, w, store, nil)
			time.Sleep(10 * time.Minute)
			untouched(t, w, e)
			gate(t, e, code)
			refused(t, code)(e.Fence(t.Context(), byHand)) // people are bound, too
		})
	}
}

// A member whose Node is gone, so that an uncached read does not show it, still counts for
// the quorum of etcd. // I12
func TestMembersWithoutANodeStillCount(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		controlPlaneOf(w, true)
		w.addOther(3)
		w.Do(func(s *fake.State) {
			for _, node := range []string{"other-2", "other-3"} { // of five, three are seen afresh
				s.MakeControlPlane(node)
				s.Host(node).MemberUnseen = true
			}
		})
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Equal(t, "2 of 5 members are healthy without it, 3 are needed", gate(t, e, reason.QuorumLost).Value)
	})
}

// If a member is lost between the probe and step 1, the run is dropped. // I12
func TestQuorumLostAfterTheProbeDropsTheRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		controlPlaneOf(w, true)
		w.OnLook(func(looks int) {
			if looks == 2 {
				w.Do(func(s *fake.State) { s.Host("other-0").MemberSick = true })
			}
		})
		e := running(t, w, store, nil)
		time.Sleep(65 * time.Second)
		stands(t, e, remediate.Aborted, "QuorumLost")
		assert.Zero(t, w.Count(bmc.CommandOff))
	})
}

// Only one control-plane host is fenced at a time, whether a check or a person asks. A Held run blocks the
// next one, too: the state of its host is not known. // I12
func TestSecondControlPlaneHostIsRefused(t *testing.T) {
	for fault, after := range map[fake.Fault]time.Duration{fake.NoFault: 65 * time.Second, fake.IgnoresOff: 5 * time.Minute} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			controlPlaneOf(w, true)
			w.SetFault(fault)
			e := running(t, w, store, nil)
			time.Sleep(after)
			require.Equal(t, fault == fake.IgnoresOff, only(t, e).Step == remediate.Held)
			refused(t, reason.ControlPlaneBusy)(e.Fence(t.Context(), byHandAt("other-1")))
		})
	}
}

// The run of a target that the check no longer selects is dropped. // I4
func TestTargetThatIsNoLongerSelectedIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := nodePolicy()
		p.Selector = labels.SelectorFromSet(rack)
		w.OnLook(func(looks int) {
			if looks == 2 {
				w.Do(func(s *fake.State) { s.ChangeNode("n-1", func(n *fake.Node) { delete(n.Labels, "rack") }) })
			}
		})
		e := running(t, w, store, withPolicy(w, p))
		time.Sleep(65 * time.Second)
		r := stands(t, e, remediate.Aborted)
		assert.Contains(t, r.Note, "select")
		assert.Empty(t, w.Commands())
	})
}
