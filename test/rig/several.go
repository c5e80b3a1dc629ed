package rig

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// StartAll starts several control planes at the same time, for example a management API and a workload
// API, and returns them in the order of their options. Each has its own ports, directory and CA, so a
// certificate of one is invalid for another. After an error all are stopped.
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
