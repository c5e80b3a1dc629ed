package rig

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// StartAll starts several control planes at once, in the order of their options:
// a management API and a workload API that know nothing of each other. Each has
// ports, a directory and an authority of its own, so a certificate of one means
// nothing to another. On error all are stopped again.
func StartAll(ctx context.Context, options ...Options) ([]*ControlPlane, error) {
	planes := make([]*ControlPlane, len(options))
	g, gctx := errgroup.WithContext(ctx)
	for i, o := range options {
		g.Go(func() (err error) {
			planes[i], err = Start(gctx, o)
			return err
		})
	}
	err := g.Wait()
	if err == nil {
		return planes, nil
	}
	for _, c := range planes {
		if c != nil {
			c.Stop()
		}
	}
	return nil, err
}
