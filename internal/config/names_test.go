package config

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/test/law"
)

// TestClusterNameLaw: the control socket takes the name of every cluster that can be
// configured, and no other.
func TestClusterNameLaw(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-bA-B0._-]{1,6}`), rapid.StringMatching(`[a-b0.-]{60,66}`)).Draw(t, "name")
		if configured := textChecks["clusterName"](name) == nil; (api.CheckCluster(name) == nil) != configured {
			t.Fatalf("%q: configured %t, at the socket %v", name, configured, api.CheckCluster(name))
		}
	})
}
