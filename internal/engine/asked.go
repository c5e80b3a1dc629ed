package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

// askedRecords reads from the store what other remediators were asked.
type askedRecords struct {
	e *Engine

	mu   sync.Mutex
	told event.Told[string] // what could not be read
}

// maxUnreadText bounds what is told about records that cannot be read, in bytes.
const maxUnreadText = 500

// load reads the records of all clusters. One that cannot be read blocks its target, and nothing
// else: its key names the target. It is told, once. The error is that of a store that does not
// answer. // I20, I22
func (a *askedRecords) load(ctx context.Context) ([]escalate.Record, error) {
	all, err := state.LoadAsked(ctx, a.e.opt.Store)
	if err != nil && !errors.Is(err, state.ErrUnreadable) {
		return nil, fmt.Errorf("load what other remediators were asked: %w", err)
	}
	var unread []string
	for _, r := range all {
		if r.Unreadable != "" {
			unread = append(unread, fmt.Sprintf("nobody acts on %s in cluster %s until fencectl abort %s --as-is --yes --reason WHY: %s", strings.Join(r.Target.Names(), ", "), r.Target.Cluster, r.ID, r.Unreadable))
		}
	}
	if err != nil { // nobody knows for which target
		unread = append(unread, err.Error())
	}
	a.tell(bmc.Printable(strings.Join(unread, "; "), maxUnreadText))
	return all, nil
}

func (a *askedRecords) tell(unread string) {
	a.mu.Lock()
	news := a.told.News(unread)
	a.mu.Unlock()
	if news {
		a.e.opt.Events.Emit(event.Event{Type: event.Internal, Message: "what other remediators were asked cannot be read: " + unread})
	}
}

// whyNotStart refuses a configuration without a cluster in which an object that fenced made may
// exist, as it refuses one without a cluster in which a run is open.
func (a *askedRecords) whyNotStart(all []escalate.Record) error {
	i := slices.IndexFunc(all, func(r escalate.Record) bool {
		return r.Blocking() && r.Unreadable == "" && a.e.clusters.Get(r.Target.Cluster) == nil && a.e.opt.Owners.Owner(r.Target.Cluster).Instance == a.e.opt.Instance
	})
	if i < 0 {
		return nil
	}
	r := all[i]
	return fmt.Errorf("%s, which fenced made for %s, may exist in cluster %q, which the configuration no longer names; add the cluster again until fenced has deleted the object, "+
		"or until you have given it up with fencectl abort %s --as-is --reason WHY", r.Newest(), strings.Join(r.Target.Names(), ", "), r.Target.Cluster, r.ID)
}
