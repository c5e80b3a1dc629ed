package run

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// savedBackups are the copies of the Node that were saved for one run. Nobody else writes them,
// so they are read from the store only once.
type savedBackups struct {
	lead *lead.Lead
	run  string         // its ID
	list []state.Backup // as stored; nil if that is not known
}

// read returns the saved Nodes as JSON and, from the newest, what a deletion must match. An
// error means that they could not be read, which is not the same as none.
func (b *savedBackups) read(ctx context.Context) (nodes [][]byte, last remediate.Backup, err error) {
	if b.list == nil {
		list, err := state.Backups(ctx, b.lead.Store(), b.run)
		if err != nil {
			return nil, remediate.Backup{Unread: true}, err
		}
		b.list = append([]state.Backup{}, list...)
	}
	nodes = make([][]byte, 0, len(b.list))
	for _, each := range b.list {
		nodes = append(nodes, each.Node)
		last = remediate.Backup{UID: each.NodeUID, ResourceVersion: each.ResourceVersion}
	}
	return nodes, last, nil
}

// save saves a fresh copy of the whole Node. SaveBackup reads it back. // I21
func (b *savedBackups) save(ctx context.Context, kube Kube, t remediate.Target) error {
	node, read, err := kube.Backup(ctx, t)
	if err != nil {
		return err
	}
	b.list = nil
	return state.SaveBackup(ctx, b.lead.Store(), state.Backup{
		RunID: b.run, NodeUID: read.UID, ResourceVersion: read.ResourceVersion, Saved: time.Now().UTC(), Node: node,
	})
}
