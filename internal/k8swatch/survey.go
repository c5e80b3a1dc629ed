package k8swatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	// surveyPatience is how long a kind may answer with errors before it counts as not seen. An
	// API server that is busy recovers in less.
	surveyPatience = 3 * time.Second
	surveyPoll     = 20 * time.Millisecond
	surveyLooks    = 8 // at the same time
)

// Survey is what the API servers of a cluster serve, and who is alive there, read once.
type Survey struct {
	Servers     []SurveyedServer // the workload API, and the management API if it is another
	Kinds       []SurveyedKind
	Controllers []SurveyedController
	// Medik8s: the namespace of medik8s' Leases exists. Medik8sErr: that could not be read.
	Medik8s    bool
	Medik8sErr error
	// Changes are all objects, as Cluster.Changes returns them first.
	Changes []policy.Change
}

// SurveyedServer is one API server.
type SurveyedServer struct {
	URL, Version string
	Groups       []string // the API groups that it serves
	// NamespaceUID is that of the Namespace which was asked for; "" if it does not exist. NamespaceErr: that could not be read.
	NamespaceUID string
	NamespaceErr error
}

// SurveyedKind is one kind that fenced watches. Problem says why its objects were not seen.
type SurveyedKind struct {
	Management  bool // it is on a management API of its own
	Group, Kind string
	Served      bool
	Objects     int
	Problem     string
}

// SurveyedController is another remediation controller, by its leader Lease. Holder is empty if
// it is not alive. Elsewhere are namespaces in which such a Lease has a holder and does not count.
type SurveyedController struct {
	Name, Lease, Holder string
	Elsewhere           []string
	Err                 error
}

// surveyor reads a cluster once.
type surveyor struct{ *Cluster }

// TakeSurvey reads a cluster once, with the code that watches it for the daemon, and whether a namespace exists. It writes
// nothing. The error says that an API server could not be used at all. It may be called once for
// each Cluster, and not beside Run.
func TakeSurvey(ctx context.Context, of *Cluster, namespace string) (Survey, error) {
	c := surveyor{of}
	var s Survey
	for _, side := range c.sides() {
		server, err := identify(ctx, side.Server, namespace)
		if err != nil {
			return s, err
		}
		s.Servers = append(s.Servers, server)
	}
	running, stop := context.WithCancel(ctx)
	var g sync.WaitGroup
	g.Go(func() { _ = c.Run(running) }) // its only result is the end of ctx
	for range 2 {                       // the requests of the checks' templates are watched once the checks are known
		c.await(ctx)
		c.adjustRequests()
	}
	s.Kinds = c.kinds(ctx)
	s.Changes = c.Changes()
	stop()
	g.Wait()
	s.Controllers = c.controllers(ctx, s.Servers)
	s.Medik8s, s.Medik8sErr = c.Medik8s(ctx)
	return s, nil
}

// identify asks an API server who it is, and what it serves.
func identify(ctx context.Context, s *client.Server, namespace string) (SurveyedServer, error) {
	host, err := s.Address()
	if err != nil {
		return SurveyedServer{}, err
	}
	server := SurveyedServer{URL: bmc.RedactAddress(host)} // it may hold a password // I25
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	raw, err := s.API().Typed.Core.Get().AbsPath("/version").Do(ctx).Raw()
	var version struct{ GitVersion string }
	if err == nil {
		err = json.Unmarshal(raw, &version)
	}
	var groups metav1.APIGroupList
	if err == nil {
		err = s.API().Document(ctx, "/apis", &groups)
	}
	if err != nil {
		return server, fmt.Errorf("ask the %s API server %s of kubeconfig %s: %w", s.Name, server.URL, s.Kubeconfig, err)
	}
	server.Version = version.GitVersion
	for _, g := range groups.Groups {
		server.Groups = append(server.Groups, g.Name)
	}
	ns, err := s.API().Typed.Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case err == nil:
		server.NamespaceUID = string(ns.UID)
	case !client.IsGone(err, namespace):
		server.NamespaceErr = fmt.Errorf("read Namespace %s of the %s API server: %w", namespace, s.Name, err)
	}
	return server, nil
}

// await waits until each kind is in the view, or has only errors.
func (c surveyor) await(ctx context.Context) {
	start := time.Now()
	tick := time.NewTicker(surveyPoll)
	defer tick.Stop()
	for !c.isRead(time.Since(start) > surveyPatience) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// isRead reports whether each kind is in the view. With problems, a kind that cannot be read
// counts, too.
func (c surveyor) isRead(problems bool) bool {
	for _, side := range c.sides() {
		for _, st := range side.watched() {
			if at, problem := st.state(); at.IsZero() && (!problems || problem == "") {
				return false
			}
		}
	}
	return true
}

// kinds lists the kinds that are watched, each once for each API.
func (c surveyor) kinds(ctx context.Context) []SurveyedKind {
	var kinds []SurveyedKind
	for _, side := range c.sides() {
		for _, st := range side.watched() {
			k := SurveyedKind{Management: side.IsApart(), Group: st.Group, Kind: st.Kind, Served: true}
			if !st.builtIn() {
				_, err := side.Find(ctx, st.Resource)
				if k.Served = err == nil; err != nil && !errors.Is(err, client.ErrNotInstalled) {
					k.Problem = err.Error()
				}
			}
			at, problem := st.state()
			k.Objects = st.count()
			if at.IsZero() {
				k.Problem = cmp.Or(problem, k.Problem, "no answer in time")
			}
			i := slices.IndexFunc(kinds, func(o SurveyedKind) bool {
				return o.Management == k.Management && o.Group == k.Group && o.Kind == k.Kind
			})
			if i < 0 {
				kinds = append(kinds, k)
				continue
			}
			kinds[i].Objects += k.Objects
			kinds[i].Problem = cmp.Or(kinds[i].Problem, k.Problem)
		}
	}
	return kinds
}

func (s *store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items)
}

// controllers asks for the leaders that the check for other remediators knows, where their kinds are
// served, and for the Lease of fenced. // I22
func (c surveyor) controllers(ctx context.Context, servers []SurveyedServer) []SurveyedController {
	work, manage := servers[0].Groups, servers[len(servers)-1].Groups
	inMachineAPI := func(lease string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			return c.leaders.at(ctx, c.work.API(), machineAPINamespace, lease)
		}
	}
	manager := func(s *side, lease string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return c.leaders.in(ctx, s.API(), lease) }
	}
	namespaced := map[string]*side{clusterAPILeader: c.manage, metal3Leader: c.manage, nodeCheckLeader: c.work}
	var found []SurveyedController
	for _, k := range []struct {
		name, lease, group string
		served             []string
		ask                func(context.Context) (string, error)
	}{
		{"OpenShift's MachineHealthCheck controller", checkLeader, client.MachineGroup, work, inMachineAPI(checkLeader)},
		{"OpenShift's bare-metal actuator", powerCycleLeader, client.MachineGroup, work, inMachineAPI(powerCycleLeader)},
		{"Cluster API manager", clusterAPILeader, client.ClusterGroup, manage, manager(c.manage, clusterAPILeader)},
		{"Metal3's Cluster API provider", metal3Leader, client.ClusterGroup, manage, manager(c.manage, metal3Leader)},
		{"an installation of fenced that may act", write.OwnLease, coordinationv1.GroupName, work, func(ctx context.Context) (string, error) {
			return c.leaders.at(ctx, c.work.API(), metav1.NamespaceSystem, write.OwnLease)
		}},
		{"medik8s' NodeHealthCheck operator", nodeCheckLeader, client.Medik8sGroup, work, manager(c.work, nodeCheckLeader)},
	} {
		if !slices.Contains(k.served, k.group) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
		one := SurveyedController{Name: k.name, Lease: k.lease}
		if one.Holder, one.Err = k.ask(ctx); one.Holder == "" && one.Err == nil && namespaced[k.lease] != nil {
			one.Elsewhere, one.Err = c.leaders.elsewhere(ctx, namespaced[k.lease].API(), k.lease)
		}
		cancel()
		found = append(found, one)
	}
	return found
}

// Contender is who else would act on a target; empty if nobody. Err says that it is not known.
type Contender struct {
	Who string
	Err error
}

// Contenders asks for each target what a run asks before it acts: whether another remediator is
// alive that would act on it, too. The results stand beside the targets. // I22
func Contenders(ctx context.Context, c *Cluster, targets []remediate.Target) []Contender {
	found := make([]Contender, len(targets))
	turns := make(chan struct{}, surveyLooks)
	var g sync.WaitGroup
	for i, t := range targets {
		g.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			look := c.Look(ctx, remediate.Run{Target: t}, nil)
			switch look.Seen.Contested {
			case remediate.Yes:
				found[i].Who = look.Seen.Contender
			case remediate.CannotTell:
				found[i].Err = cmp.Or(look.Err, errors.New("it is not known who else would act on it"))
			}
		})
	}
	g.Wait()
	return found
}
