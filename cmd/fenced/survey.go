package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/k8swatch"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/setup"
)

const (
	// surveyTime bounds the whole look at a cluster; an API server that hangs ends it with what was seen.
	surveyTime = 45 * time.Second
	// surveyFresh is how often the view is compared with the API; a survey needs only the first.
	surveyFresh = 10 * time.Second
	// maxAsked is of how many Nodes it is asked who else would act on them: each takes several requests.
	maxAsked = 100
	// maxRequest bounds what fencectl sends.
	maxRequest = 1 << 20
)

// survey looks at a cluster for `fencectl init`: it reads a setup.Request and writes a setup.Survey. It is
// here, and not in fencectl, because this program is the one that knows Kubernetes.
func survey(ctx context.Context, in io.Reader, out io.Writer) error {
	var r setup.Request
	if err := json.NewDecoder(io.LimitReader(in, maxRequest)).Decode(&r); err != nil {
		return fmt.Errorf("read what to survey: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	k8swatch.LogTo(io.Discard)
	c, err := k8swatch.New(k8swatch.Config{Config: view.Config{
		Name: r.Cluster, Kubeconfig: r.Kubeconfig, FreshEvery: surveyFresh, StoreID: "survey",
		Management: view.ManagementConfig(r.Management),
	}}, zap.NewNop())
	if err != nil {
		return err
	}
	seen, err := k8swatch.TakeSurvey(ctx, c, setup.Account)
	if err != nil {
		return err
	}
	found, err := surveyed(ctx, c, r.Cluster, seen)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(found)
}

// surveyed evaluates what was seen, with the policy of the daemon.
func surveyed(ctx context.Context, c *k8swatch.Cluster, cluster string, seen k8swatch.Survey) (setup.Survey, error) {
	s := setup.Survey{Cluster: cluster, Medik8sLeases: seen.Medik8s, Nodes: []setup.Node{}, Controllers: []setup.Controller{}, Clusters: []string{}, HostNamespaces: []string{}, Unseen: []setup.Unseen{}}
	for _, v := range seen.Servers {
		s.Servers = append(s.Servers, setup.Server{URL: v.URL, Version: v.Version, Groups: v.Groups, Namespace: v.NamespaceUID, Unverified: v.Unverified})
		if v.NamespaceErr != nil {
			s.Unseen = append(s.Unseen, setup.NotSeen("Namespace "+setup.Account, "Namespace "+setup.Account, v.NamespaceErr.Error()))
		}
	}
	for _, ch := range seen.Changes {
		if ch.ID.Kind == "BareMetalHost" && !slices.Contains(s.HostNamespaces, ch.ID.Namespace) {
			s.HostNamespaces = append(s.HostNamespaces, ch.ID.Namespace)
		}
	}
	slices.Sort(s.HostNamespaces)
	for _, k := range seen.Kinds {
		s.Kinds = append(s.Kinds, setup.Kind(k))
		if k.Problem != "" {
			s.Unseen = append(s.Unseen, setup.NotSeen(strings.TrimSuffix(k.Kind+"."+k.Group, "."), k.Kind, k.Problem))
		}
	}
	for _, k := range seen.Controllers {
		row := setup.Controller{Name: k.Name, Lease: k.Lease, Holder: k.Holder, Elsewhere: k.Elsewhere}
		if k.Err != nil {
			row.Problem = k.Err.Error()
			s.Unseen = append(s.Unseen, setup.NotSeen("Lease "+k.Lease, "Lease", row.Problem))
		}
		s.Controllers = append(s.Controllers, row)
	}
	if seen.Medik8sErr != nil {
		s.Unseen = append(s.Unseen, setup.NotSeen("Namespace medik8s-leases", "Namespace medik8s-leases", seen.Medik8sErr.Error()))
	}
	now := time.Now()
	ledger := policy.NewLedger(policy.Rules{ClusterRequired: true, ManagementApart: s.Apart()})
	ledger.Apply(now, seen.Changes...)
	for _, o := range ledger.Snapshot().Clusters {
		s.Clusters = append(s.Clusters, o.Name)
	}
	surveyNodes(ctx, c, ledger, &s)
	if err := addStarter(ledger, &s, now); err != nil {
		return s, err
	}
	s.Report = ledger.Report(now)
	return s, nil
}

// addStarter evaluates the policy that init writes for a cluster without checks, too.
func addStarter(ledger *policy.Ledger, s *setup.Survey, now time.Time) error {
	text := s.StarterPolicy()
	if text == nil {
		return nil
	}
	found, err := manifest.DecodePolicies("policies.d", text)
	if err != nil {
		return fmt.Errorf("evaluate the policy of init: %w", err)
	}
	for i := range found.Checks {
		k := &found.Checks[i]
		ledger.Apply(now, policy.Change{ID: policy.ObjectID{APIVersion: k.APIVersion, Kind: k.Kind, Name: k.Name}, Value: k})
	}
	return nil
}

// surveyNodes lists the Nodes with their BMCs, and who else would act on them.
func surveyNodes(ctx context.Context, c *k8swatch.Cluster, ledger *policy.Ledger, s *setup.Survey) {
	nodes := slices.SortedFunc(ledger.Nodes(), func(a, b *policy.Node) int { return cmp.Compare(a.Name, b.Name) })
	var targets []remediate.Target
	for _, n := range nodes {
		row := setup.Node{Name: n.Name, UUID: n.SystemUUID, ControlPlane: n.ControlPlane, Ready: n.Ready()}
		if n.ControlPlane && !policy.ControlPlaneNode(n.Labels) {
			row.Hostname = n.Labels.Get("kubernetes.io/hostname")
		}
		t := remediate.Target{Cluster: s.Cluster, Node: n.Name, NodeUID: n.UID, BootID: n.BootID, SystemUUID: n.SystemUUID}
		if m := ledger.MachineOf(n.Name); m != nil {
			row.Machine = m.Key()
			t.Namespace, t.Machine, t.MachineUID, t.MachineAPI = m.Namespace, m.Name, m.UID, m.APIVersion
			if h, err := ledger.HostOf(m); err == nil {
				row.BareMetalHost, row.BMC, t.BareMetalHost = h.Key(), h.Address, h.Key()
			}
		}
		s.Nodes = append(s.Nodes, row)
		targets = append(targets, t)
	}
	targets = targets[:min(len(targets), maxAsked)]
	unknown := ""
	for i, who := range k8swatch.Contenders(ctx, c, targets) {
		s.Nodes[i].Asked, s.Nodes[i].Contested = who.Err == nil, who.Who
		if who.Err != nil {
			unknown = cmp.Or(unknown, s.Nodes[i].Name+": "+who.Err.Error())
		}
	}
	if unknown != "" {
		s.Unseen = append(s.Unseen, setup.NotSeen("who else would act on a Node", "who else would act on a Node", unknown))
	}
}
