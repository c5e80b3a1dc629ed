package ipmi

import (
	"context"
	"time"
)

// Some BMCs need seconds for a command, and work on one after the other. Such a BMC
// also works on every repeat of a command, and answers the next command even later.
// So a command is repeated soon only if the BMC has answered it soon before.
const (
	// newCommandWait is how long to wait for the answer to a command that this session
	// has not measured yet.
	newCommandWait = 3 * time.Second
	// After this many tries without an answer, the BMC no longer knows the session: it
	// drops what it cannot authenticate. One wait for a command that was not measured is
	// as long.
	commandTries    = 3
	newCommandTries = 1
)

// commandTimes is how long the BMC took for each command in one session.
type commandTimes struct {
	took    map[commandID]time.Duration // for the last answer to each
	slowest time.Duration
}

// commandID is a command without its data.
type commandID struct{ netFn, cmd byte }

// note takes in how long the answer to r took, from its first try on.
func (c *commandTimes) note(r request, took time.Duration) {
	if c.took == nil {
		c.took = map[commandID]time.Duration{}
	}
	c.took[commandID{r.netFn, r.cmd}] = took
	c.slowest = max(c.slowest, took)
}

// patience is how often to send r in a session that the BMC may have forgotten, and how
// long to wait for the first answer. A command that was not measured may take half of the
// time that is left, so that one lost datagram does not end the operation.
func (c *commandTimes) patience(ctx context.Context, r request) (tries int, wait time.Duration) {
	if took, measured := c.took[commandID{r.netFn, r.cmd}]; measured {
		return commandTries, waitAfter(took)
	}
	wait = max(newCommandWait, waitAfter(c.slowest))
	if end, ends := ctx.Deadline(); ends {
		wait = max(firstWait, min(wait, time.Until(end)/2))
	}
	return newCommandTries, wait
}
