package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// kube is one fenced's reads past the cache, and its writes; it implements
// engine.Kube. Answers are true at the moment they were made, and may be lost, cut
// in parts, or old when they come.
type kube struct{ inc *incarnation }

// requestTimeout is that of one read or write.
const requestTimeout = 5 * time.Second

var (
	errLost      = errors.New("the API server did not answer")
	errForbidden = errors.New("the API server forbids it")
)

// request brings a request to the API server.
func (k kube) request(ctx context.Context, what string) error {
	if err := k.inc.call(ctx, what); err != nil {
		return err
	}
	w := k.inc.i.w
	var cut, forbidden, lost bool
	var wait, silence time.Duration
	w.do(func() {
		cut, forbidden = !k.inc.reaches(), time.Now().Before(k.inc.i.forbidden)
		if lost = w.dice.Float64() < w.lost(); lost {
			w.fault("api-request-lost", "", "%s of %s", what, k.inc)
		}
		wait, silence = between(w.dice, 3*time.Millisecond, 50*time.Millisecond), between(k.inc.rng, time.Millisecond, requestTimeout)
	})
	switch {
	case cut && !forbidden, lost:
		_ = sleep(ctx, silence)
		return errLost
	case forbidden:
		return errForbidden
	}
	return sleep(ctx, wait)
}

// answer brings the answer back.
func (k kube) answer(ctx context.Context, what string) error {
	w := k.inc.i.w
	var lost bool
	wait := time.Duration(0)
	w.do(func() {
		if lost = w.dice.Float64() < w.lost(); lost {
			w.fault("api-answer-lost", "", "%s of %s", what, k.inc)
		}
		if w.dice.Float64() < w.slow() {
			wait = between(w.dice, 500*time.Millisecond, 4*time.Second)
			w.fault("api-answer-slow", "", "")
		}
	})
	if lost {
		_ = sleep(ctx, requestTimeout)
		return errLost
	}
	if err := sleep(ctx, wait); err != nil {
		return errLost
	}
	return k.inc.call(ctx, what+" answered")
}

// Look implements engine.Kube.
func (k kube) Look(ctx context.Context, r remediate.Run, backups [][]byte) engine.Fresh {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w := k.inc.i.w
	began := time.Now()
	w.do(func() { k.inc.active[r.Target.Node] = began })
	err := k.request(ctx, "look")
	var f engine.Fresh
	if err == nil {
		w.do(func() { f = k.inc.look(r, backups) })
		err = k.answer(ctx, "look")
	}
	if err != nil {
		f = engine.Fresh{Err: err}
		if errors.Is(err, errForbidden) {
			f.Seen.API = remediate.APIForbidden
		}
		return f
	}
	w.do(func() {
		if w.dice.Float64() < w.lost() {
			w.fault("api-part-lost", "", "")
			f.Seen.Lease, f.Lease, f.Err, f.Seen.API = remediate.Lease{}, policy.Lease{}, errLost, remediate.APIUnreachable
		}
		if r.Step == remediate.DeleteNode {
			w.api.touch(r.Target.Node)
		}
		w.looked(k.inc, r, f, began) // the truth, whatever a defect makes of it
		w.defect.looked(&f, r)
	})
	return f
}

// look is what the API server says now. w.mu is held.
func (c *incarnation) look(r remediate.Run, backups [][]byte) engine.Fresh {
	a, ahead := c.i.w.api, c.i.skew
	t := r.Target
	f := engine.Fresh{Seen: remediate.Seen{API: remediate.APIReachable, Contested: remediate.No, Hold: remediate.No,
		Lease: remediate.Lease{Known: true}, Node: remediate.Node{Exists: remediate.No}, Machine: remediate.Machine{Exists: remediate.No}}}
	if l, ok := a.leases[t.Node]; ok {
		f.Seen.Lease = remediate.Lease{Known: true, ResourceVersion: fmt.Sprint(l.version), RenewTime: l.renewed.Add(ahead)}
		f.Lease = policy.Lease{RenewTime: l.renewed.Add(ahead)}
	}
	if n := a.nodes[t.Node]; n != nil {
		f.Node, _ = dated(n.policy(), ahead).(*policy.Node)
		f.Seen.Lease.Heard = f.Node.Heard()
		f.Seen.Node = remediate.Node{Exists: remediate.Yes, UID: n.UID, ResourceVersion: fmt.Sprint(n.ResourceVersion), BootID: n.BootID,
			SystemUUID: n.SystemUUID, Ready: remediate.Ask(n.Ready == "True"), OutOfService: n.outOfService()}
		if backups != nil {
			f.Seen.Restored = remediate.Ask(len(missing(n, backups)) == 0 && !(r.Isolation == remediate.IsolateTaint && n.outOfService()))
		}
	}
	if m := a.machines[t.Node]; m != nil {
		f.Machine = m.policy(a.w.plan.Metal)
		f.Seen.Machine = remediate.Machine{Exists: remediate.Yes, UID: m.uid, Replaceable: remediate.Ask(!m.controlPlane), Why: "it is a control plane"}
	}
	if h := a.metal[t.Node]; h != nil && t.BareMetalHost != "" {
		f.Seen.Hold = remediate.Ask(h.hold)
		if !h.online {
			f.Seen.PowerForbidden = "its owner wants it off"
		}
	}
	if r.Step == remediate.PowerOn && r.Abandon == "" {
		f.Seen.PodsGone = remediate.Ask(a.pods[t.Node] == 0)
	}
	if a.rival != "" {
		f.Seen.Contested, f.Seen.Contender = remediate.Yes, a.rival
	}
	f.Members, f.MembersKnown = a.members(), true
	return f
}

// members are those of etcd.
func (a *apiServer) members() []policy.Member {
	var list []policy.Member
	for _, h := range a.w.hosts {
		if n := a.nodes[h.name]; h.controlPlane && n != nil {
			list = append(list, policy.Member{Node: h.name, Healthy: n.Ready == "True"})
		}
	}
	return list
}

// missing is what a Node lacks of what was saved.
func missing(n *node, backups [][]byte) (lacks []string) {
	for _, b := range backups {
		var old node
		if json.Unmarshal(b, &old) != nil {
			return []string{"a backup that can be read"}
		}
		for k := range old.Labels {
			if _, ok := n.Labels[k]; !ok {
				lacks = append(lacks, "label "+k)
			}
		}
		for _, t := range old.Taints {
			if t != outOfService && !slices.Contains(n.Taints, t) {
				lacks = append(lacks, "taint "+t)
			}
		}
		if old.Cordoned && !n.Cordoned {
			lacks = append(lacks, "cordon")
		}
	}
	return lacks
}

// Backup implements engine.Kube.
func (k kube) Backup(ctx context.Context, t remediate.Target) ([]byte, remediate.Backup, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.request(ctx, "backup"); err != nil {
		return nil, remediate.Backup{}, err
	}
	var n *node
	k.inc.i.w.do(func() { n = k.inc.i.w.api.nodes[t.Node] })
	if err := k.answer(ctx, "backup"); err != nil {
		return nil, remediate.Backup{}, err
	}
	if n == nil || t.NodeUID != "" && n.UID != t.NodeUID {
		return nil, remediate.Backup{}, errors.New("it is another Node than the one that was decided on")
	}
	return n.json(), remediate.Backup{UID: n.UID, ResourceVersion: fmt.Sprint(n.ResourceVersion)}, nil
}

// Credentials implements engine.Kube.
func (k kube) Credentials(ctx context.Context, _, name string) (user string, password bmc.Secret, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.request(ctx, "credentials"); err != nil {
		return "", bmc.Secret{}, err
	}
	k.inc.i.w.do(func() {
		if h := k.inc.i.w.hostOf(strings.TrimPrefix(name, "bmc-")); h != nil {
			password = h.password()
		}
	})
	return "root", password, k.answer(ctx, "credentials")
}

// decoded are the Nodes of backups, as far as they can be read.
func decoded(backups [][]byte) (list []node) {
	for _, b := range backups {
		var n node
		if json.Unmarshal(b, &n) == nil {
			list = append(list, n)
		}
	}
	return list
}
