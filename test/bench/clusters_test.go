package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
)

// A few small clusters show that the measurement measures; it fails by itself if two instances have one claim, or a host is switched.
func TestMeasureClusters(t *testing.T) {
	dice.OnlyInSoak(t)
	r := must.Do(MeasureClusters(t.Context(), ClustersOptions{
		Clusters: 6, Nodes: 20, Pins: 500, Storm: 20, BadChecks: 50, Timeout: 40 * time.Second, Window: 3 * time.Second,
		Parts: parts, Progress: t.Output(),
	}))(t)
	assert.Positive(t, r.Owned)
	assert.GreaterOrEqual(t, r.Acting, r.Owned)
	assert.Positive(t, r.Idle.EtcdRequests)
	assert.Positive(t, r.Busy.EtcdRequests)
	assert.Positive(t, r.Idle.APIRequests)
	owned := 0
	for _, n := range r.Balance {
		owned += n
	}
	assert.Equal(t, 6, owned)
	require.Len(t, r.HandOvers, instances)
	for _, h := range r.HandOvers {
		assert.NotContains(t, h.Balance, h.Lost, "%s: the others own all", h.What)
		assert.NotEmpty(t, h.Owned, h.What)
		assert.NotEmpty(t, h.Back, "%s: clusters come back", h.What)
	}
	require.Len(t, r.Decisions, len(conditions))
	for i, took := range r.Decisions {
		require.Len(t, took, 5, conditions[i])
		for _, d := range took {
			assert.Positive(t, d, "%s: nothing is done before the timeout is over", conditions[i])
		}
	}
	var out bytes.Buffer
	require.NoError(t, r.Print(&out))
	assert.Contains(t, out.String(), "p99 / p99 without")
}

func TestMeasureClustersRefusesTooSmall(t *testing.T) {
	for name, o := range map[string]ClustersOptions{
		"one cluster":          {Clusters: 1, Nodes: 20, Storm: 1, Window: time.Second},
		"only Nodes that fail": {Clusters: 2, Nodes: len(conditions), Storm: 1, Window: time.Second},
		"no storm":             {Clusters: 2, Nodes: 20, Window: time.Second},
		"no window":            {Clusters: 2, Nodes: 20, Storm: 1},
	} {
		_, err := MeasureClusters(t.Context(), o)
		assert.ErrorContains(t, err, "are needed", name)
	}
	assert.ErrorContains(t, run(t.Context(), []string{"clusters", "-parts", "half"}), `"half"`)
}

// The claims of all instances are read from their audit logs, and no claim is two instances'.
func TestClaimsOfTheAuditLogs(t *testing.T) {
	s := &site{dir: t.TempDir(), seen: newClaims()}
	say := func(instance int, cluster, message string) {
		l := must.Do(audit.Open(filepath.Join(s.instances[instance].dir, "audit.jsonl"), audit.Options{}))(t)
		defer l.Close()
		must.Do(l.Append(t.Context(), audit.Entry{At: time.Now(), Type: event.OwnerChanged, Cluster: cluster, Message: message}))(t)
	}
	for _, name := range []string{"one", "two"} {
		p := &peerDaemon{name: name, dir: filepath.Join(s.dir, name)}
		require.NoError(t, os.Mkdir(p.dir, 0o700))
		s.instances = append(s.instances, p)
	}
	say(0, "a", "owns the cluster in epoch 5")
	say(0, "b", "owns the cluster in epoch 6")
	say(0, "a", "releases ownership of the cluster in epoch 5")
	say(1, "a", "owns the cluster in epoch 9")
	c := must.Do(s.claims())(t)
	assert.Equal(t, map[string]int{"one": 1, "two": 1}, c.balance())
	assert.Equal(t, "two", c.owners["a"].instance)
	assert.False(t, c.released["a"].IsZero())
	assert.Equal(t, c.owners["a"].at, c.last(time.Time{}))
	say(1, "b", "owns the cluster in epoch 6")
	_, err := s.claims()
	assert.ErrorContains(t, err, "b in epoch 6")
}

// What is sent while the relay is cut arrives when it is mended.
func TestTCPRelay(t *testing.T) {
	l := must.Do(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	r := must.Do(startTCPRelay(l.Addr().String()))(t)
	defer r.Stop()
	echo := func(ctx context.Context, c net.Conn) (string, error) {
		end, ok := ctx.Deadline()
		if ok {
			require.NoError(t, c.SetReadDeadline(end))
		} else {
			require.NoError(t, c.SetReadDeadline(time.Time{}))
		}
		buf := make([]byte, 1)
		_, err := io.ReadFull(c, buf)
		return string(buf), err
	}
	open := must.Do(net.Dial("tcp", r.Addr()))(t)
	defer open.Close()
	must.Do(open.Write([]byte("1")))(t)
	assert.Equal(t, "1", must.Do(echo(t.Context(), open))(t))
	r.Cut()
	fresh := must.Do(net.Dial("tcp", r.Addr()))(t)
	defer fresh.Close()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, c := range []net.Conn{open, fresh} {
		must.Do(c.Write([]byte("2")))(t)
		_, err := echo(short, c)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	r.Mend()
	for _, c := range []net.Conn{open, fresh} {
		assert.Equal(t, "2", must.Do(echo(t.Context(), c))(t))
	}
}
