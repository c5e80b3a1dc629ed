package remediate

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// A record of an old backup says what was true once. Whatever its step is, its run ends by itself while the host
// works: without a power command, without a false Off. // I1, I5, I20, I27
func TestRunOfAnOldBackupEndsWhileItsHostWorks(t *testing.T) {
	played := 0
	for _, step := range []Step{PowerOff, DeleteNode, PowerOn, AwaitNode, RestoreNode, Reprovision, Waiting, Held} {
		for _, isolation := range []Isolation{IsolateDelete, IsolateTaint} {
			for attempt := 1; attempt <= 2; attempt++ {
				for _, isolated := range []bool{false, true} {
					for _, saved := range []bool{false, true} {
						for _, node := range []string{"u1", "u9"} { // it was never isolated, or it was, and has registered again
							name := fmt.Sprintf("%s %s attempt %d, isolated %t, saved %t, Node %s", step, isolation, attempt, isolated, saved, node)
							r, s := begin(step, sec)
							r.Isolation, r.Attempt, r.Limits.RetryInterval = isolation, attempt, time.Minute
							if r.Isolated = (time.Time{}); isolated {
								r.Isolated = ago(time.Minute)
							}
							if step.Idle() {
								r.Reason, r.Wait = reason.AttemptsExhausted, &Wait{Since: ago(time.Minute), Code: reason.AttemptsExhausted, Count: 1}
							}
							if node == "u1" && isolation == IsolateDelete && (isolated || step.afterIsolation()) || step == PowerOn && !isolated {
								continue // there is no such record
							}
							s.Node = Node{Exists: Yes, UID: node, ResourceVersion: "9", BootID: "b9", SystemUUID: "s", Ready: Yes, Created: ago(time.Hour)}
							s.Lease.ResourceVersion, s.Justified, s.Backup, s.OffAccepted = "v9", No, Backup{}, false
							if saved {
								s.Backup = Backup{UID: "u1", ResourceVersion: "1"}
							}
							on(&s)
							played++
							endsUntouched(t, name, r, s)
						}
					}
				}
			}
		}
	}
	assert.Equal(t, 196, played)
}

// A run of an old backup in step 3 sends no On before anything says that its host may be off. The process that has
// sent the Off itself need not ask. // I20
func TestOldBackupSendsNoOnInTheDark(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*Observation)
		want Action
	}{
		"neither answers":            {func(*Observation) {}, Nothing},
		"another cluster answers":    {func(s *Observation) { s.API, s.ClusterUID = APIReachable, "another" }, Nothing},
		"the API server answers":     {func(s *Observation) { s.API = APIReachable }, SendOn},
		"it answers that it may not": {func(s *Observation) { s.API = APIForbidden }, SendOn},
		"the BMC reads Off":          {func(s *Observation) { s.Power.State, s.PowerError = bmc.Off, "" }, SendOn},
		"this process has sent Off":  {func(s *Observation) { s.OffAccepted = true }, SendOn},
	} {
		r, s := begin(PowerOn, 2*minute)
		r.Target.ClusterUID, s.ClusterUID = "home", ""
		noAPI(&s)
		unread(&s, bmc.KindUnreachable)
		s.OffAccepted = false
		c.set(&s)
		if s.API == APIReachable && s.ClusterUID == "" {
			s.ClusterUID = "home"
		}
		r, a, _ := Next(r, s, noon)
		assert.Equal(t, []any{PowerOn, c.want}, []any{r.Step, a}, name)
	}
	r, s := begin(PowerOn, time.Hour) // its time does not run out meanwhile
	noAPI(&s)
	unread(&s, bmc.KindUnreachable)
	s.OffAccepted = false
	r, a, _ := Next(r, s, noon)
	assert.Equal(t, []any{PowerOn, noon, Nothing}, []any{r.Step, r.StepStarted, a})
}

func (s Step) afterIsolation() bool { return s == AwaitNode || s == RestoreNode || s == Reprovision }

// endsUntouched plays a run on one unchanging look.
func endsUntouched(t *testing.T, name string, r Run, s Observation) {
	t.Helper()
	now := noon
	for range 3000 {
		if r.Step.Ended() {
			return
		}
		s.Level, s.At, s.Power.At = r.Level, now, now
		next, a, wait := Next(r, s, now)
		switch a {
		case Nothing, RestoreTargetNode, ReleasePowerLock:
		default:
			t.Errorf("%s: %s in step %s", name, a, r.Step)
			return
		}
		if next.Reason == reason.FalseOff || s.Power.State != bmc.On {
			t.Errorf("%s: FalseOff from step %s: %s", name, r.Step, next.Note)
			return
		}
		r, now = next, now.Add(max(wait, time.Millisecond))
	}
	t.Errorf("%s: does not end: %s %s: %s", name, r.Step, r.Reason, r.Note)
}
