package k8swatch

import (
	"context"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/look"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Survey is what the API servers of a cluster serve, and who is alive there, read once.
type Survey struct {
	Servers     []look.SurveyedServer // the workload API, and the management API if it is another
	Kinds       []view.SurveyedKind
	Controllers []look.SurveyedController
	// Medik8s: the namespace of medik8s' Leases exists. Medik8sErr: that could not be read.
	Medik8s    bool
	Medik8sErr error
	// Changes are all objects, as Cluster.Changes returns them first.
	Changes []policy.Change
}

// TakeSurvey reads a cluster once, with the code that watches it for the daemon, and whether a namespace exists. It writes
// nothing. The error says that an API server could not be used at all. It may be called once for
// each Cluster, and not beside Run.
func TakeSurvey(ctx context.Context, c *Cluster, namespace string) (Survey, error) {
	var s Survey
	servers := []*client.Server{c.servers.Work}
	if c.servers.Manage != c.servers.Work {
		servers = append(servers, c.servers.Manage)
	}
	for _, server := range servers {
		found, err := look.Identify(ctx, server, namespace)
		if err != nil {
			return s, err
		}
		s.Servers = append(s.Servers, found)
	}
	s.Kinds, s.Changes = c.Survey(ctx)
	s.Controllers = c.reader.Controllers(ctx, s.Servers, write.OwnLease)
	s.Medik8s, s.Medik8sErr = c.Medik8s(ctx)
	return s, nil
}

// Contenders says for each target who else would act on it; see look.Reader.
func Contenders(ctx context.Context, c *Cluster, targets []remediate.Target) []look.Contender {
	return c.reader.Contenders(ctx, targets)
}
