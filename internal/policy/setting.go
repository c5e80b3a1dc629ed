package policy

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// CheckContext is what a check depends on besides its targets.
type CheckContext struct {
	Rules Rules
	// Cluster is the Cluster API's; nil when it is not known.
	Cluster *Cluster
	// ClusterUnread: it is not known because it could not be decoded.
	ClusterUnread bool
	// Upgrading says why the whole cluster is being upgraded.
	Upgrading string
	// MachineChecks are the OpenShift checks of the same cluster.
	MachineChecks map[CheckID]*Check
	// Crowded: the checks select too many targets together.
	Crowded bool
}

// setting is whether, and how, a check is evaluated at one instant.
type setting struct {
	state   State
	message string
	// refusals forbid all actions of the check at once.
	refusals []reason.Code
	// due is when time alone changes any of this; zero is never.
	due time.Time
	// exempt is a Node condition whose bearers another check looks after.
	exempt string
}

// settingOf says whether a check can be evaluated, and if not, why. What it
// looks at is the same for all of its targets.
func settingOf(c *Check, a CheckContext, now time.Time) setting {
	switch {
	case c.family() == unknownFamily:
		return setting{state: StateInvalid, message: fmt.Sprintf("this version does not judge %s %s", c.APIVersion, c.Kind)}
	case c.Invalid != "":
		return setting{state: StateInvalid, message: c.Invalid}
	case a.Crowded:
		return setting{state: StateInvalid, message: a.Rules.crowdedMessage()}
	}
	if err := c.parseLimits(); err != nil {
		return setting{state: StateInvalid, message: err.Error()}
	}
	switch {
	case c.family() == clusterAPI:
		return c.settingClusterAPI(a)
	case c.Paused:
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

// State says whether the check can be evaluated by what it says itself, at no
// particular time.
func (c *Check) State() (State, string) {
	s := settingOf(c, CheckContext{}, time.Time{})
	return s.state, s.message
}
