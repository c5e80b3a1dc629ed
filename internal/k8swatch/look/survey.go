package look

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/remediate"
)

// surveyLooks is how many targets are looked at at the same time.
const surveyLooks = 8

// SurveyedServer is one API server.
type SurveyedServer struct {
	URL, Version string
	Groups       []string // the API groups that it serves
	// NamespaceUID is that of the Namespace which was asked for; "" if it does not exist. NamespaceErr: that could not be read.
	NamespaceUID string
	NamespaceErr error
	// Unverified: the kubeconfig asks for no look at the certificate of the server.
	Unverified bool
}

// SurveyedController is another remediation controller, by its leader Lease. Holder is empty if
// it is not alive. Elsewhere are namespaces in which such a Lease has a holder and does not count.
type SurveyedController struct {
	Name, Lease, Holder string
	Elsewhere           []string
	Err                 error
}

// Identify asks an API server who it is, and what it serves.
func Identify(ctx context.Context, s *client.Server, namespace string) (SurveyedServer, error) {
	host, err := s.Address()
	if err != nil {
		return SurveyedServer{}, err
	}
	server := SurveyedServer{URL: bmc.RedactAddress(host)} // it may hold a password // I25
	if server.Unverified, err = s.Unverified(); err != nil {
		return server, err
	}
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

// Controllers asks for the leaders that the check for other remediators knows, where their kinds are
// served, and for the Lease of fenced, which has the name own. // I22
func (r *Reader) Controllers(ctx context.Context, servers []SurveyedServer, own string) []SurveyedController {
	work, manage := servers[0].Groups, servers[len(servers)-1].Groups
	inMachineAPI := func(lease string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			return r.Leaders.at(ctx, r.Servers.Work.API(), machineAPINamespace, lease)
		}
	}
	manager := func(s *client.Server, lease string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return r.Leaders.in(ctx, s.API(), lease) }
	}
	namespaced := map[string]*client.Server{clusterAPILeader: r.Servers.Manage, metal3Leader: r.Servers.Manage, nodeCheckLeader: r.Servers.Work}
	var found []SurveyedController
	for _, k := range []struct {
		name, lease, group string
		served             []string
		ask                func(context.Context) (string, error)
	}{
		{"OpenShift's MachineHealthCheck controller", checkLeader, client.MachineGroup, work, inMachineAPI(checkLeader)},
		{"OpenShift's bare-metal actuator", powerCycleLeader, client.MachineGroup, work, inMachineAPI(powerCycleLeader)},
		{"Cluster API manager", clusterAPILeader, client.ClusterGroup, manage, manager(r.Servers.Manage, clusterAPILeader)},
		{"Metal3's Cluster API provider", metal3Leader, client.ClusterGroup, manage, manager(r.Servers.Manage, metal3Leader)},
		{"an installation of fenced that may act", own, coordinationv1.GroupName, work, func(ctx context.Context) (string, error) {
			return r.Leaders.at(ctx, r.Servers.Work.API(), metav1.NamespaceSystem, own)
		}},
		{"medik8s' NodeHealthCheck operator", nodeCheckLeader, client.Medik8sGroup, work, manager(r.Servers.Work, nodeCheckLeader)},
	} {
		if !slices.Contains(k.served, k.group) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
		one := SurveyedController{Name: k.name, Lease: k.lease}
		if one.Holder, one.Err = k.ask(ctx); one.Holder == "" && one.Err == nil && namespaced[k.lease] != nil {
			one.Elsewhere, one.Err = r.Leaders.elsewhere(ctx, namespaced[k.lease].API(), k.lease)
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
func (r *Reader) Contenders(ctx context.Context, targets []remediate.Target) []Contender {
	found := make([]Contender, len(targets))
	turns := make(chan struct{}, surveyLooks)
	var g sync.WaitGroup
	for i, t := range targets {
		g.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			look := r.Look(ctx, remediate.Run{Target: t}, nil)
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
