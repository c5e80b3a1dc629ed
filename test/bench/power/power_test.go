package power

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

func TestFigure(t *testing.T) {
	f := figure{
		{wall: 3, cpu: 10, trips: trips{datagrams: 5}},
		{wall: 1, cpu: 30, trips: trips{datagrams: 9}},
		{wall: 2, cpu: 20, trips: trips{datagrams: 5}},
	}
	assert.EqualValues(t, 2, f.wall())
	assert.EqualValues(t, 20, f.cpu())
	assert.Equal(t, 5, f.trips().roundTrips())
	sum := f[0].add(f[1])
	assert.Equal(t, cost{4, 40, trips{datagrams: 14}}, sum)
	assert.Equal(t, 5, trips{requests: 3, handshakes: 1}.roundTrips(), "TCP, TLS and three requests")
}

func TestOverhead(t *testing.T) {
	read := need{trips: trips{datagrams: 5}}
	assert.InDelta(t, 0.07, read.overhead(20*time.Millisecond, 107*time.Millisecond), 1e-9)
	assert.Zero(t, read.overhead(0, time.Second), "nothing to compare with")
	proof := need{trips: trips{requests: 6, handshakes: 1}, waits: spacing}
	assert.Equal(t, 3800*time.Millisecond, proof.least(100*time.Millisecond))
	assert.InDelta(t, 0.01, proof.overhead(0, 3030*time.Millisecond), 1e-9)
}

// of is one sample for each of delays.
func of(n trips, walls ...time.Duration) (all []figure) {
	for _, w := range walls {
		all = append(all, figure{{wall: w, cpu: time.Millisecond, trips: n}})
	}
	return all
}

func TestCheck(t *testing.T) {
	one := trips{datagrams: 1}
	n := need{what: "a read", trips: one}
	kept := times{n, of(one, time.Second, 21*time.Millisecond, 101*time.Millisecond)}
	fine := scale{size: 1000, hung: 100, sweep: 100 * time.Millisecond, sweepAlone: 90 * time.Millisecond, sweepBeside: 95 * time.Millisecond}
	steady := isolation{alone: share{wall: 3 * time.Second}, beside: share{wall: 3 * time.Second}}
	require.NoError(t, (&Report{needs: []times{kept}, scale: fine, many: []isolation{steady}}).Check())

	slow := times{n, of(one, 0, 23*time.Millisecond, 101*time.Millisecond)}
	assert.ErrorContains(t, (&Report{needs: []times{slow}, scale: fine}).Check(), "a read at 20ms took 15 % longer")
	chatty := times{n, of(trips{datagrams: 2}, 0, 0, 0)}
	assert.Len(t, chatty.broken(), len(delays))
	for _, spoil := range []func(*scale){
		func(s *scale) { s.sweep = boundSweep },
		func(s *scale) { s.sweepBeside = 5 * time.Second },
	} {
		bad := fine
		spoil(&bad)
		assert.Len(t, bad.broken(), 1)
	}
	steady.beside.wall = 4 * time.Second
	assert.ErrorContains(t, (&Report{many: []isolation{steady}}).Check(), "an isolation beside")
}

func TestPrint(t *testing.T) {
	r := &Report{scale: scale{size: 1000, hung: 100, sample: 100, sweep: 100 * time.Millisecond, exec: 2 * time.Second,
		sweepAlone: 90 * time.Millisecond, sweepBeside: 99 * time.Millisecond}}
	r.many = []isolation{{what: "IPMI", peer: "ipmitool", hosts: 900, hung: 100, alone: share{3 * time.Second, time.Millisecond, 20 << 20},
		beside: share{6 * time.Second, time.Millisecond, 20 << 20}, floor: share{cpu: time.Millisecond / 4}, other: share{cpu: 9 * time.Millisecond}}}
	for _, d := range delays {
		c := contest{delay: d}
		for i, e := range entries {
			f := of(trips{requests: 3 * i, handshakes: i}, time.Duration(i+1)*time.Millisecond)[0]
			c.rows = append(c.rows, row{e.name(), f, f})
		}
		r.contests = append(r.contests, c)
	}
	for _, n := range needs {
		r.needs = append(r.needs, times{n, of(n.trips, n.least(0), n.least(delays[1]), 2*n.least(delays[2]))})
	}
	var out bytes.Buffer
	require.NoError(t, r.Print(&out))
	for _, want := range []string{"fence_ipmilan (defaults)", "3.0 ms (3)", "5 (3 HTTP, 1 TLS)", "20 ms a round trip", "100.0 %", "broken",
		"20000.0 ms (200)", "99.0 ms (1.10)", "< 1.5 of it: ok", "0.25 ms (0.25)", "9.00 ms (9)", "20 MiB", "6000.0 ms (2.00)", "< 1.1 of it: broken"} {
		assert.Contains(t, out.String(), want)
	}
}

// here is a worker in this process.
func here(ctx context.Context) (io.WriteCloser, io.Reader, error) {
	inRead, in := io.Pipe()
	out, outWrite := io.Pipe()
	go func() { outWrite.CloseWithError(errors.Join(Serve(ctx, inRead, outWrite), io.EOF)) }()
	return in, out, nil
}

// TestNeeds: every operation of ours takes exactly the round trips the tables
// hold it against, and a proof is one.
func TestNeeds(t *testing.T) {
	for _, n := range needs {
		t.Run(n.what, func(t *testing.T) {
			t.Parallel()
			f := must.Do(n.measure(t.Context(), 0, 1, here))(t)
			assert.Equal(t, n.trips, f.trips())
			assert.GreaterOrEqual(t, f.wall(), n.least(0))
		})
	}
}

// TestHold: every contestant still does what it is measured at.
func TestHold(t *testing.T) {
	for _, name := range []string{"ipmi_sim", "ipmitool", "fence_ipmilan", "fence_redfish"} {
		if _, err := find(name); err != nil {
			bmctest.Missing(t, err.Error())
		}
	}
	c := must.Do(hold(t.Context(), 0, 1, here))(t)
	require.Len(t, c.rows, len(entries))
	ours := c.rows[0]
	for i, r := range c.rows {
		assert.Equal(t, entries[i].name(), r.name)
		assert.Positive(t, r.status.wall(), r.name)
		if i < overIPMI && entries[i].tool != "fenced" {
			assert.Greater(t, r.proof.trips().roundTrips(), ours.proof.trips().roundTrips(), r.name)
		}
	}
}

func TestWorkerErrors(t *testing.T) {
	err := Serve(t.Context(), bytes.NewBufferString(`{"Tool":"telnet"}`), io.Discard)
	require.ErrorContains(t, err, "telnet")
	e := entry{tool: "fenced", over: startGo}
	c := must.Do(e.start(t.Context(), 0, here))(t)
	defer c.end()
	_, err = c.do("reboot")
	require.ErrorContains(t, err, "nothing to do")
	_, err = c.do(actConfirm)
	require.ErrorContains(t, err, "reads On", "it was not switched off")
}

// Ten hosts, of which one has a BMC that hangs: the others are isolated all the same, by fenced and by the floor.
func TestMany(t *testing.T) {
	for _, k := range must.Do(kinds())(t) {
		t.Run(k.what, func(t *testing.T) {
			t.Parallel()
			if k.peer == "ipmitool" {
				if _, err := find(k.peer); err != nil {
					bmctest.Missing(t, err.Error())
				}
			}
			var r isolation
			pace.Until(t, "a measurement", func() bool { // programs of others give up early on a busy machine
				var err error
				if r, err = k.measure(t.Context(), 10, 1, here); err != nil {
					t.Log(err)
				}
				return err == nil
			})
			assert.Equal(t, []int{9, 1}, []int{r.hosts, r.hung})
			for _, s := range []share{r.floor, r.alone, r.beside, r.other} {
				assert.Positive(t, s.cpu)
			}
		})
	}
}

func TestStatusOfAHostThatIsOff(t *testing.T) {
	f, jobs, err := startFleet(t.Context(), 1, directIPMI)
	require.NoError(t, err)
	defer f.stop()
	require.NoError(t, f[0].(direct).SetPower(false))
	_, err = crowdOf(jobs, 0).each(t.Context(), readOn)
	require.ErrorContains(t, err, "reads Off")
}
