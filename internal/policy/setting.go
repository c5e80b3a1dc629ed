package policy

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// CheckContext is what a check depends on besides its targets.
type CheckContext struct {
	Rules Rules
	// Cluster is the Cluster of a Cluster API check; nil if it is not known.
	Cluster *Cluster
	// ClusterUnread: Cluster is nil because it could not be decoded.
	ClusterUnread bool
	// Upgrading describes the upgrade of the cluster that the check waits for; "" if
	// there is none.
	Upgrading string
	// MachineChecks are the OpenShift checks of the same cluster.
	MachineChecks map[CheckID]*Check
	// Disabled says why nobody carries out the requests that fenced makes for the check;
	// "" if somebody does.
	Disabled string
	// Tried lists by the name of a Node or Machine the requests that fenced made for the check, and
	// that exist no more.
	Tried map[string][]Attempt
	// OverTargetLimit: the checks of its author select too many targets together.
	OverTargetLimit bool
}

// setting is whether, and how, a check is evaluated at one instant.
type setting struct {
	state   State
	message string
	// conflicting: state is StateDisabled because of the MachineHealthChecks of the cluster.
	conflicting bool
	// refusals forbid all actions of the check.
	refusals []reason.Code
	// due is when the passage of time changes the setting; zero means never.
	due time.Time
	// exempt is a Node condition. Another check handles the Nodes that have it.
	exempt string
}

// settingOf determines whether a check can be evaluated, and if not, why. The
// result is the same for all of its targets.
func settingOf(c *Check, a CheckContext, now time.Time) setting {
	switch {
	case c.family() == unknownFamily:
		return setting{state: StateInvalid, message: fmt.Sprintf("this version does not evaluate %s %s", c.APIVersion, c.Kind)}
	case c.Invalid != "":
		return setting{state: StateInvalid, message: c.Invalid}
	case a.OverTargetLimit:
		return setting{state: StateInvalid, message: a.Rules.targetLimitMessage(c)}
	}
	if err := c.parseLimits(); err != nil {
		return setting{state: StateInvalid, message: err.Error()}
	}
	st := c.settingOfFamily(a, now)
	if why := cmp.Or(ownTemplateInFront(c), a.Disabled); st.state == StateActive && why != "" {
		return setting{state: StateDisabled, message: why, due: st.due}
	}
	if st.state == StateActive && a.Upgrading != "" {
		st.refuseFirst(reason.ClusterUpgrading, a.Upgrading)
	}
	return st
}

// refuseFirst forbids all actions of the check, before its other refusals.
func (st *setting) refuseFirst(code reason.Code, why string) {
	st.refusals = append([]reason.Code{code}, st.refusals...)
	if st.message != "" {
		why += "; " + st.message
	}
	st.message = why
}

// settingOfFamily applies the rules of the check's API family.
func (c *Check) settingOfFamily(a CheckContext, now time.Time) setting {
	switch {
	case c.family() == clusterAPI:
		return c.settingClusterAPI(a)
	case c.Paused && !c.isEvaluatedBy(a.Rules.Instance):
		return setting{state: StatePaused, message: "the check is paused"}
	case c.Disabled != "":
		return setting{state: StateDisabled, message: c.Disabled}
	case c.family() == medik8s:
		return c.settingMedik8s(a)
	case len(c.Windows) > 0:
		return c.settingWindows(now)
	}
	return setting{state: StateActive}
}

// isEvaluatedBy reports whether the check was paused only for its own controller,
// so that this instance of fenced evaluates it, alone or in turn with others.
func (c *Check) isEvaluatedBy(instance string) bool {
	if c.Evaluator == "" || instance == "" {
		return c.Evaluator != ""
	}
	for name := range strings.SplitSeq(c.Evaluator, ",") {
		if strings.TrimSpace(name) == instance {
			return true
		}
	}
	return false
}

// State reports whether the check can be evaluated by its own content,
// independent of the time, with a message if it cannot.
func (c *Check) State() (State, string) {
	s := settingOf(c, CheckContext{}, time.Time{})
	return s.state, s.message
}
