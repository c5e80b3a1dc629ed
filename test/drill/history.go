package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/rig"
)

// event is something that happened, as those saw it to whom it happened: BMCs, API server and etcd. No daemon is asked.
type event struct {
	At   time.Duration // since the beginning
	Kind kind
	By   string // the bastion
	Host string
	On   bool // a command to power on; or what the power of the host is now
	// Epoch is that of a claim.
	Epoch int64
	// Wait: the owner before was lost, so that this one must wait.
	Wait bool
	// UID of the Node that was deleted; "" if the request had no such precondition, or none of a version.
	UID string
}

type kind string

const (
	command  kind = "command"  // a BMC carries out a command of a bastion
	power    kind = "power"    // the power of a host changes
	deletion kind = "deletion" // the API server deletes a Node; On is the power of its host at this instant
	claim    kind = "claim"    // a bastion owns the cluster from now on
	end      kind = "end"      // and now no more: it has released the cluster, or its lease is over
	hang     kind = "hang"     // the kernel of a host hangs
	healthy  kind = "healthy"  // a host that hung has booted since, and its Node is Ready
	heal     kind = "heal"     // all faults are over
	back     kind = "back"     // a host that hung is on and healthy, after heal
)

// saved is the kind of event that a bastion has saved what it is about to do to a host. It only tells when: faults begin then.
func saved(a remediate.Action) kind { return kind("save " + string(a)) }

func (e event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8.3fs %-8s", e.At.Seconds(), e.Kind)
	for _, s := range []string{e.By, e.Host, e.UID} {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	switch e.Kind {
	case command, power, deletion:
		fmt.Fprintf(&b, " on=%t", e.On)
	case claim:
		fmt.Fprintf(&b, " epoch %d, must wait: %t", e.Epoch, e.Wait)
	}
	return b.String()
}

// history collects events.
type history struct {
	begin time.Time
	mu    sync.Mutex
	all   []event
	seen  chan struct{} // closed at the next event, and made anew
}

func newHistory() *history { return &history{begin: time.Now(), seen: make(chan struct{})} }

func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = time.Since(h.begin)
	h.all = append(h.all, e)
	close(h.seen)
	h.seen = make(chan struct{})
}

// events are those so far, and what is closed when there are more.
func (h *history) events() ([]event, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all), h.seen
}

// limits are the times that check needs.
type limits struct {
	takeover time.Duration // how long an owner waits after one that was lost
	// slack is how much later than the owner the drill may learn of a claim. An owner first reads and writes records, asks the API server
	// and the BMC, and writes its audit log.
	slack time.Duration
	back  time.Duration // how long after the end of the faults each host is back
	open  bool          // the history goes on: who is not back may still come
}

// tenure is the time of one claim.
type tenure struct {
	event
	ended time.Duration // 0: it has not
}

func (t tenure) covers(at time.Duration) bool { return t.At <= at && (t.ended == 0 || at < t.ended) }

// hostState is what the checker knows of a host.
type hostState struct {
	on, hung, everHung, isBack bool
	sentOff                    bool // the last command is an Off, sent while it hung; a BMC may carry it out late
}

// check returns what is wrong in a history, as sentences:
//
//   - one owner at a time: a claim begins when the one before has ended, and its epoch is larger;
//   - one power owner: a command that a BMC carries out comes from the bastion whose claim lasts at that moment. If the owner before was
//     lost and did not release the cluster, it comes when the takeover delay is over. So between the commands of two bastions lies the
//     end of the claim of one and the beginning of the claim of the other;
//   - a Node is deleted only while its host is off, once, by the UID and version of what was looked at, by the bastion that owns the cluster;
//   - a host is sent an Off only until it is healthy again, and goes off only by one; one that never hung gets no command, and its Node is not deleted;
//   - each host that hung was off and is back within its time after the faults.
func check(all []event, l limits) (wrong []string) {
	violate := func(e event, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%.3fs: ", e.At.Seconds())+fmt.Sprintf(format, args...))
	}
	var last tenure
	hosts, deleted, healed := map[string]*hostState{}, map[string]bool{}, time.Duration(0)
	state := func(name string) *hostState {
		if hosts[name] == nil {
			hosts[name] = &hostState{on: true}
		}
		return hosts[name]
	}
	for _, e := range all {
		h := state(e.Host)
		switch e.Kind {
		case claim:
			if last.Epoch != 0 && last.ended == 0 {
				violate(e, "%s claims the cluster while %s owns it", e.By, last.By)
			}
			if e.Epoch <= last.Epoch {
				violate(e, "epoch %d of %s follows epoch %d", e.Epoch, e.By, last.Epoch)
			}
			last = tenure{event: e}
		case end:
			last.ended = e.At
		case command:
			checkOwner(e, last, l, violate)
			if !h.everHung {
				violate(e, "%s, which never hung, gets a command (on: %t)", e.Host, e.On)
			} else if !e.On && !h.hung {
				violate(e, "%s is switched off, and it is healthy again", e.Host)
			}
			h.sentOff = !e.On && h.hung
		case power:
			if !e.On && !h.sentOff {
				violate(e, "%s goes off, and it does not hang", e.Host)
			}
			h.on, h.hung = e.On, h.hung || !e.On
		case deletion:
			checkOwner(e, last, l, violate)
			if e.On || h.on {
				violate(e, "the Node of %s is deleted, and the host is on", e.Host)
			}
			if !h.everHung {
				violate(e, "the Node of %s is deleted, which never hung", e.Host)
			}
			if e.UID == "" {
				violate(e, "the Node of %s is deleted without the UID and the version of what was seen", e.Host)
			} else if deleted[e.UID] {
				violate(e, "the Node of %s with UID %s is deleted twice", e.Host, e.UID)
			}
			deleted[e.UID] = true
		case healthy:
			if h.hung = false; !h.on {
				violate(e, "%s is healthy, and off", e.Host)
			}
		case hang:
			h.hung, h.everHung = true, true
		case heal:
			healed = e.At
		case back:
			if h.isBack = true; h.hung || !h.on {
				violate(e, "%s is said to be back, and is not healthy again", e.Host)
			}
			if e.At-healed > l.back {
				violate(e, "%s is back %s after the faults, later than %s", e.Host, (e.At - healed).Round(time.Second), l.back)
			}
		}
	}
	delete(hosts, "")
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[name]
		if h.everHung && !h.isBack && !l.open {
			wrong = append(wrong, fmt.Sprintf("%s never comes back (on: %t)", name, h.on))
		}
	}
	return wrong
}

// checkOwner checks that whoever acts owns the cluster, and has waited if it must.
func checkOwner(e event, last tenure, l limits, violate func(event, string, ...any)) {
	what := fmt.Sprintf("%s (%s, on: %t) of %s", e.Host, e.Kind, e.On, e.By)
	switch {
	case last.Epoch == 0:
		violate(e, "%s before anybody owned the cluster", what)
	case last.By != e.By:
		violate(e, "%s, while %s owns the cluster or was the last to do so (epoch %d)", what, last.By, last.Epoch)
	case !last.covers(e.At):
		violate(e, "%s after its claim of epoch %d had ended", what, last.Epoch)
	case last.Wait && e.At < last.At+l.takeover-l.slack:
		violate(e, "%s only %s after its claim, and the owner before it was lost", what, (e.At - last.At).Round(time.Millisecond))
	}
}

// claims notes the claims to the cluster as soon as one member of etcd knows them. The members tell the same, in the same order.
type claims struct {
	*site
	mu       sync.Mutex
	known    int64 // the last revision that was noted
	released bool  // the last owner released the cluster, or there was none
	owner    string
}

// The keys of ownership, and of the records of runs: see internal/state/etcdstore.
const ownerKey, lastKey, runs, prefix = "/fenced/ha/owner/drill", "/fenced/ha/last/drill", "/fenced/rec/run/", "/fenced/"

// watchClaims watches at each member, with a connection that no fault touches.
func (s *site) watchClaims() error {
	secure, err := transport.TLSInfo{CertFile: s.etcd.Cert(), KeyFile: s.etcd.Key(), TrustedCAFile: s.etcd.CA()}.ClientConfig()
	if err != nil {
		return fmt.Errorf("read the etcd client's certificate: %w", err)
	}
	c := &claims{site: s, released: true}
	for _, member := range s.etcd.Endpoints() {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{member}, TLS: secure, Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second})
		if err != nil {
			return fmt.Errorf("make an etcd client: %w", err)
		}
		s.wg.Go(func() {
			defer client.Close()
			c.watch(s.life, client)
		})
	}
	return nil
}

// watch notes what one member tells, until ctx ends. A member that is killed is watched again from where it ended.
func (c *claims) watch(ctx context.Context, client *clientv3.Client) {
	for ctx.Err() == nil {
		c.mu.Lock()
		next := c.known + 1
		c.mu.Unlock()
		watching, cancel := context.WithCancel(ctx)
		for r := range client.Watch(watching, prefix, clientv3.WithPrefix(), clientv3.WithRev(next)) {
			c.note(r.Events)
		}
		cancel()
		rig.Sleep(ctx, 100*time.Millisecond)
	}
}

// note notes the events of whole revisions that no other member has told before.
func (c *claims) note(events []*clientv3.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known
	for _, e := range events {
		if e.Kv.ModRevision <= known {
			continue
		}
		c.known = e.Kv.ModRevision
		switch key := string(e.Kv.Key); {
		case key == ownerKey && e.Type == clientv3.EventTypeDelete:
			c.history.add(event{Kind: end, By: c.owner})
		case key == ownerKey:
			var v struct{ Instance string }
			_ = json.Unmarshal(e.Kv.Value, &v) // fenced wrote it
			c.owner = v.Instance
			c.history.add(event{Kind: claim, By: v.Instance, Epoch: e.Kv.CreateRevision, Wait: !c.released})
		case key == lastKey:
			var v struct {
				GivenUp bool `json:"givenUp"`
			}
			_ = json.Unmarshal(e.Kv.Value, &v)
			c.released = v.GivenUp
		case strings.HasPrefix(key, runs):
			var v struct{ Data remediate.Run }
			if at := bytes.IndexByte(e.Kv.Value, '{'); at < 0 || json.Unmarshal(e.Kv.Value[at:], &v) != nil || v.Data.Intent.Action == "" {
				continue
			}
			c.history.add(event{Kind: saved(v.Data.Intent.Action), Host: v.Data.Target.Node})
		}
	}
}
