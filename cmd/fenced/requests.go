package main

import (
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
)

// requests lists the oldest open remediation requests of a cluster, and says how many more there are.
func (c control) requests(cluster string) (list []api.RequestStatus, more int) {
	open, more := engine.NewLookup(c.engine).Requests(cluster, time.Now())
	for i := range open {
		list = append(list, requestStatus(&open[i]))
	}
	return list, more
}

func requestStatus(s *admit.RequestState) api.RequestStatus {
	out := api.RequestStatus{
		Kind: s.Ref.Kind, Namespace: s.Ref.Namespace, Name: s.Ref.Name, Node: s.Target.Node, Machine: s.Target.MachineKey(),
		Phase: s.Status.Phase, Run: s.Status.Run, Finalizer: s.HasFinalizer,
	}
	if conditions := s.Status.Conditions; len(conditions) > 0 { // all say the same
		out.Reason, out.Message = conditions[0].Reason, conditions[0].Message
	}
	return out
}
