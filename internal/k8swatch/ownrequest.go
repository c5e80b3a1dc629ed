package k8swatch

import (
	"context"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Requests writes what fenced tells the remediation requests that it carries out.
type Requests struct {
	write.Requests
	c *Cluster
}

// Requests returns what writes to the requests of the cluster.
func (c *Cluster) Requests() Requests { return Requests{c.writesRequests, c} }

// TemplateAttempts is how many power cycles fenced's own template of a check allows; see write.Handovers.
func (r Requests) TemplateAttempts(ctx context.Context, check *policy.Check, t policy.Template, target remediate.Target) (int, error) {
	return NewHandovers(r.c).TemplateAttempts(ctx, check, t, target)
}

// ClearStale removes the annotation that requests the remediation of a Machine
// whose Node is Ready without it. It does nothing if another remediator may have begun:
// without the annotation that one would leave the host off. // I22
func (r Requests) ClearStale(ctx context.Context, t remediate.Target) (removed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	who, err := r.c.leaders.at(ctx, r.c.work.API(), machineAPINamespace, powerCycleLeader)
	if err != nil || who != "" {
		return false, err
	}
	u, err := r.c.servers.Machine(ctx, t)
	switch {
	case client.IsGone(err, t.Machine), err == nil && string(u.GetUID()) != t.MachineUID:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read Machine %s: %w", t.MachineKey(), err)
	}
	for key := range u.GetAnnotations() {
		if strings.HasPrefix(key, startedMarks) {
			return false, fmt.Errorf("clear the request of Machine %s: its annotation %s says that another remediator has begun; "+
				"let that one finish, or remove its annotations", t.MachineKey(), key)
		}
	}
	n, err := r.c.work.API().Node(ctx, t.Node)
	if err != nil {
		return false, fmt.Errorf("read Node %s: %w", t.Node, err)
	}
	if !policyNode(n).Ready() {
		return false, nil
	}
	err = r.Clear(ctx, t)
	return err == nil, err
}

// startedMarks begins the annotations that OpenShift's bare-metal actuator leaves on a
// Machine whose host it has begun to switch.
const startedMarks = "remediation.metal3.io/"
