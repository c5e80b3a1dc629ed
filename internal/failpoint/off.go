//go:build !failpoint

package failpoint

import "github.com/fenced/fenced/internal/engine"

// Wrap changes nothing in the shipped binary.
func Wrap(o engine.Options) engine.Options { return o }

// WrapCluster changes nothing in the shipped binary.
func WrapCluster(o engine.ClusterOptions) engine.ClusterOptions { return o }
