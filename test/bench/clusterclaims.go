package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/rig"
)

// handOvers loses one instance after another, each in another way, and lets it come back.
func (s *site) handOvers(ctx context.Context, r *ClustersResult) error {
	killed, frozen, cut := s.instances[0], s.instances[1], s.instances[2]
	signal := func(p *peerDaemon, sig syscall.Signal) func() error {
		return func() error { return p.cmd.Process.Signal(sig) }
	}
	relays := func(do func(*tcpRelay)) func() error {
		return func() error {
			for _, relay := range cut.relays {
				do(relay)
			}
			return nil
		}
	}
	for _, h := range []struct {
		part, what     string
		p              *peerDaemon
		lose, comeBack func() error
	}{
		{"kill", "kill -9", killed, func() error { killed.kill(); <-killed.done; return nil }, killed.start},
		{"freeze", "freeze", frozen, signal(frozen, syscall.SIGSTOP), signal(frozen, syscall.SIGCONT)},
		{"partition", "partition from the etcd", cut, relays((*tcpRelay).Cut), relays((*tcpRelay).Mend)},
	} {
		if !slices.Contains(s.Parts, h.part) {
			continue
		}
		s.tell("hand-over: %s", h.what)
		result, err := s.handOver(ctx, h.p, h.lose, h.comeBack)
		if err != nil {
			return fmt.Errorf("hand-over after %s: %w", h.what, err)
		}
		result.What = h.what
		s.tell("%d clusters: first %s, last %s, all acted on %s; handed back, last %s without an owner", len(result.Owned),
			seconds(times.Quantile(result.Owned, 0)), seconds(times.Quantile(result.Owned, 1)), seconds(result.Acting), seconds(times.Quantile(result.Back, 1)))
		r.HandOvers = append(r.HandOvers, result)
	}
	return nil
}

func (s *site) handOver(ctx context.Context, p *peerDaemon, lose, comeBack func() error) (h HandOver, err error) {
	before, err := s.claims()
	if err != nil {
		return h, err
	}
	h.Lost = p.name
	lost := time.Now()
	if err := lose(); err != nil {
		return h, err
	}
	p.lost = true
	taken := func(c claims) bool {
		for _, o := range c.owners {
			if o.instance == p.name {
				return false
			}
		}
		return len(c.owners) == s.Clusters
	}
	c, err := s.await(ctx, "others own the clusters of "+p.name, taken)
	if err != nil {
		return h, err
	}
	for cluster, o := range before.owners {
		if o.instance == p.name {
			h.Owned = append(h.Owned, c.owners[cluster].at.Sub(lost))
		}
	}
	h.Balance = c.balance()
	if h.Acting, err = s.awaitActing(ctx, lost); err != nil {
		return h, err
	}
	s.tell("the others act after %s", seconds(h.Acting))
	returned := time.Now()
	if err := comeBack(); err != nil {
		return h, err
	}
	p.lost = false
	c, err = s.await(ctx, p.name+" owns its clusters again", func(c claims) bool { return maps.Equal(c.balance(), before.balance()) })
	if err != nil {
		return h, err
	}
	for cluster, o := range c.owners {
		if o.at.After(returned) && o.instance == p.name {
			h.Back = append(h.Back, o.at.Sub(c.released[cluster]))
		}
	}
	_, err = s.awaitActing(ctx, returned)
	return h, err
}

// claim is who owns a cluster, since when.
type claim struct {
	instance string
	epoch    uint64
	at       time.Time
}

// claims is what the audit logs of the daemons say.
type claims struct {
	owners   map[string]claim
	released map[string]time.Time // the last time
	epochs   map[string]string    // who had each epoch of each cluster
}

func newClaims() claims {
	return claims{owners: map[string]claim{}, released: map[string]time.Time{}, epochs: map[string]string{}}
}

func (c claims) balance() map[string]int {
	n := map[string]int{}
	for _, o := range c.owners {
		n[o.instance]++
	}
	return n
}

// last is the time of the last claim.
func (c claims) last(t time.Time) time.Time {
	for _, o := range c.owners {
		t = times.Later(t, o.at)
	}
	return t
}

var ownsIn = regexp.MustCompile(`^owns the cluster in epoch (\d+)$`)

// take takes an entry of an instance in. It is an error if another instance had the same epoch of the cluster.
func (c claims) take(instance string, e audit.Entry) error {
	if e.Type != event.OwnerChanged {
		return nil
	}
	found := ownsIn.FindStringSubmatch(e.Message)
	if found == nil {
		if strings.HasPrefix(e.Message, "releases ownership") {
			c.released[e.Cluster] = times.Later(c.released[e.Cluster], e.At)
		}
		return nil
	}
	epoch, err := strconv.ParseUint(found[1], 10, 64)
	if err != nil {
		return err
	}
	key := e.Cluster + " in epoch " + found[1]
	if was, taken := c.epochs[key]; taken && was != instance {
		return fmt.Errorf("%s and %s both owned %s", was, instance, key)
	}
	c.epochs[key] = instance
	if epoch > c.owners[e.Cluster].epoch {
		c.owners[e.Cluster] = claim{instance, epoch, e.At}
	}
	return nil
}

// claims reads what is new in the audit logs.
func (s *site) claims() (claims, error) {
	for _, p := range s.instances {
		entries, err := p.entries()
		if err != nil {
			return s.seen, fmt.Errorf("read the audit log of %s: %w", p.name, err)
		}
		for _, e := range entries {
			if err := s.seen.take(p.name, e); err != nil {
				return s.seen, err
			}
		}
	}
	return claims{owners: maps.Clone(s.seen.owners), released: maps.Clone(s.seen.released)}, nil
}

// entries are the entries of the audit log since the last call.
func (p *peerDaemon) entries() (list []audit.Entry, err error) {
	f, err := os.Open(filepath.Join(p.dir, "audit.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it is starting
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, p.read, math.MaxInt64-p.read))
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) { // it is being written
			break
		}
		p.read += int64(len(line))
		var l struct {
			Entry audit.Entry `json:"entry"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, err
		}
		list = append(list, l.Entry)
	}
	return list, nil
}

const (
	claimsPoll = 250 * time.Millisecond
	// calm is for how long no cluster may change its owner. It is longer than the minute after which clusters are handed to an
	// instance that has come later.
	calm = 75 * time.Second
	// handOverTime bounds one wait, on a machine that others use.
	handOverTime = 8 * time.Minute
)

// await polls the claims until ok.
func (s *site) await(ctx context.Context, what string, ok func(claims) bool) (claims, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	for {
		c, err := s.claims()
		if err != nil || ok(c) {
			return c, err
		}
		if !rig.Sleep(ctx, claimsPoll) {
			return c, fmt.Errorf("wait until %s: %w: %v", what, ctx.Err(), c.balance())
		}
	}
}

// awaitCalm waits until no cluster has changed its owner for a while.
func (s *site) awaitCalm(ctx context.Context) (claims, error) {
	began := time.Now()
	return s.await(ctx, "the clusters stay with their owners", func(c claims) bool { return time.Since(c.last(began)) > calm })
}

// awaitActing waits until the owner of each cluster may act, and returns how long that took since a time.
func (s *site) awaitActing(ctx context.Context, since time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	for {
		n, problem := s.acting(ctx)
		if n == s.Clusters {
			return time.Since(since), nil
		}
		if !rig.Sleep(ctx, claimsPoll) {
			return 0, fmt.Errorf("wait until all clusters are acted on: %d are: %w: %s", n, ctx.Err(), problem)
		}
	}
}

// acting is how many clusters are acted on, and why another one is not.
func (s *site) acting(ctx context.Context) (n int, problem string) {
	for _, p := range s.instances {
		if p.lost {
			continue
		}
		reply, err := p.client.Status(ctx)
		if err != nil {
			problem = err.Error()
			continue
		}
		for _, c := range reply.Value.Clusters {
			switch {
			case !c.Owner:
			case c.Problem != "" || c.Nodes != s.Nodes:
				problem = fmt.Sprintf("%s: %d Nodes, %s", c.Name, c.Nodes, c.Problem)
			default:
				n++
			}
		}
	}
	return n, problem
}
