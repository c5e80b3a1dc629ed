package engine

import (
	"context"

	"github.com/fenced/fenced/internal/hosts"
)

// TakeIn gives the engine what a reload may change while runs are open. The caller has checked
// all of it before: nothing here can fail, so nothing is taken in by half.
type TakeIn struct{ e *Engine }

// Hosts takes in the content of hosts.d.
func (t TakeIn) Hosts(ctx context.Context, inventory hosts.Inventory) {
	t.e.hosts.ReplaceInventory(ctx, inventory)
}
