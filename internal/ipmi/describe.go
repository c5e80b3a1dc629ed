package ipmi

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

var _ bmc.Describer = (*Client)(nil)

// Describe reads the BMC's device ID, the host's serial number, and the BMC's
// clock and log. A USER may read all of it. Only the device ID is mandatory.
func (c *Client) Describe(ctx context.Context) (bmc.Description, error) {
	const name = "describe"
	var d bmc.Description
	status, err := c.query(ctx, chassisStatus)
	if err != nil {
		return bmc.Description{}, c.explain(name, bmc.SentNo, err)
	}
	if status.code == codeOK {
		d.RestorePolicy = restorePolicy(status.data)
	}
	who, err := c.query(ctx, deviceID)
	if err != nil {
		return bmc.Description{}, c.explain(name, bmc.SentNo, err)
	}
	if who.code == codeOK {
		readDeviceID(who.data, &d)
	}
	c.describeMore(ctx, &d)
	if err := ctx.Err(); err != nil {
		return bmc.Description{}, c.explain(name, bmc.SentNo, err)
	}
	return d, nil
}

// describeMore reads the optional parts, with the timeout of two reads. It stops
// after a command without an answer.
func (c *Client) describeMore(ctx context.Context, d *bmc.Description) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.timing.ReadTimeout)
	defer cancel()
	silent := false
	ask := func(r request) (reply, bool) {
		if silent {
			return reply{}, false
		}
		answer, err := c.query(ctx, r)
		silent = err != nil
		return answer, err == nil && answer.code == codeOK
	}
	d.Serial = fru{ask}.serial()
	if answer, ok := ask(selTime); ok {
		if d.Clock = readSELTime(answer.data); !d.Clock.IsZero() {
			d.ClockAt = time.Now()
		}
	}
	if answer, ok := ask(selInfo); ok {
		d.PowerEvents = powerEvents(selCount(answer.data), ask)
	}
}

// query sends one command, with the timeout of a read.
func (c *Client) query(ctx context.Context, r request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	op := &operation{client: c}
	return op.do(ctx, r)
}
