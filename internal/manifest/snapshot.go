package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/policy"
)

// The API groups that are read.
const (
	groupMachine  = "machine.openshift.io"
	groupHost     = "metal3.io"
	groupCluster  = "cluster.x-k8s.io"
	groupMedik8s  = "remediation.medik8s.io"
	groupFenced   = "fenced.io"
	leaseVersion  = "coordination.k8s.io/v1"
	leaseSpace    = "kube-node-lease"
	etcdSpace     = "openshift-etcd"
	hostVersion   = groupHost + "/v1alpha1"
	requestSuffix = "Remediation"
)

// class is the role of an object.
type class int

const (
	ignored class = iota
	machine
	check
	budget
	unsupportedCheck
	node
	lease
	host
	request
	pod
	cluster
	upgrade
	wrongVersion
)

// classify returns the role of an object. Kinds that fenced does not know are
// ignored; checks that it does not evaluate are not.
func classify(i id) class {
	group, _, _ := strings.Cut(i.apiVersion, "/")
	switch {
	case i.apiVersion == "v1" && i.kind == "Node":
		return node
	case i.apiVersion == leaseVersion && i.kind == "Lease" && i.namespace == leaseSpace:
		return lease
	case i.apiVersion == "v1" && i.kind == "Pod" && policy.HasControlPlanePods(i.namespace):
		return pod
	case i.apiVersion == hostVersion && i.kind == "BareMetalHost":
		return host
	case i.apiVersion == policy.OpenShiftMachineAPI && i.kind == "Machine":
		return machine
	case i.apiVersion == policy.OpenShiftMachineAPI && i.kind == policy.MachineHealthCheckKind:
		return check
	case i.apiVersion == policy.Medik8sAPI && i.kind == policy.NodeHealthCheckKind:
		return check
	case i.apiVersion == clusterVersionAPI && i.kind == clusterVersionKind:
		return upgrade
	case i.apiVersion == policy.FencedAPI && i.kind == policy.FencePolicyKind:
		return check
	case i.apiVersion == policy.FencedAPI && i.kind == policy.DisruptionBudgetKind:
		return budget
	case isClusterAPI(i.apiVersion) && i.kind == "Machine":
		return machine
	case isClusterAPI(i.apiVersion) && i.kind == policy.MachineHealthCheckKind:
		return check
	case isClusterAPI(i.apiVersion) && i.kind == "Cluster":
		return cluster
	case group == groupCluster && (i.kind == "Machine" || i.kind == "Cluster"):
		return wrongVersion
	case group == groupMachine && i.kind == "Machine", group == groupHost && i.kind == "BareMetalHost":
		return wrongVersion
	case i.kind == policy.MachineHealthCheckKind && (group == groupMachine || group == groupCluster),
		i.kind == "NodeHealthCheck" && group == groupMedik8s,
		group == groupFenced && i.kind != policy.FencedRemediationKind && i.kind != policy.FencedRemediationKind+"Template":
		return unsupportedCheck
	case strings.HasSuffix(i.kind, requestSuffix):
		return request
	}
	return ignored
}

func isRelevant(i id) bool { return classify(i) != ignored }

// Snapshot converts everything collected to policy's values.
func (o *Objects) Snapshot() policy.Snapshot {
	s := policy.Snapshot{
		Nodes:     map[string]*policy.Node{},
		Leases:    map[string]policy.Lease{},
		Errors:    append([]policy.ObjectError{}, o.unreadable...),
		Undecoded: append([]policy.ObjectKey{}, o.unreadableKeys...),
		Rules:     policy.Rules{NodesCountAsMembers: true, TrustNames: true},
	}
	for _, i := range o.order {
		e := o.found[i.anyVersion()]
		err := e.addTo(&s, i)
		if err == nil {
			continue
		}
		s.Errors = append(s.Errors, policy.ObjectError{Object: i.String(), Message: strings.ReplaceAll(err.Error(), "\n", "; ")})
		s.Undecoded = append(s.Undecoded, i.key())
	}
	return s
}

// addTo decodes one object into the snapshot. An object that was read twice with
// different contents is not evaluated, because it is unknown which is right.
func (e *entry) addTo(s *policy.Snapshot, i id) error {
	var err error
	if e.conflict != "" {
		err = fmt.Errorf("is in %s and, with other contents, in %s", e.source, e.conflict)
	}
	switch classify(i) {
	case check, unsupportedCheck:
		s.Checks = append(s.Checks, e.check(i, err))
		return nil
	case budget:
		b := e.budget(err)
		s.Budgets = append(s.Budgets, b)
		if b.Invalid != "" { // it stays, because it refuses what it may cover
			s.Errors = append(s.Errors, policy.ObjectError{Object: i.String(), Message: b.Invalid})
		}
		return nil
	case upgrade:
		u, bad := ClusterVersion(e.fields)
		if err != nil { // either of the two may be right
			u.Why = cmp.Or(u.Why, i.String()+" "+err.Error())
		}
		s.Upgrading = cmp.Or(s.Upgrading, u.Why)
		return errors.Join(err, bad)
	case wrongVersion:
		return errors.Join(err, fmt.Errorf("this version does not read %s", i.apiVersion))
	case pod:
		p, part, bad := Pod(e.fields)
		if part { // whatever else it says, its Node is of the control plane // I12
			s.Pods = append(s.Pods, p)
		}
		return errors.Join(err, bad)
	case request:
		q, err := Request(e.fields)
		s.Requests = append(s.Requests, q)
		return err
	}
	if err != nil {
		return err
	}
	return e.decode(s, i)
}

func (e *entry) check(i id, err error) policy.Check {
	c := checkDecoder(i)(e.fields)
	c.Source = e.source
	if err != nil {
		c.Invalid = err.Error()
	}
	return c
}

// checkDecoder returns the decoder of a check, by its API family.
func checkDecoder(i id) func(map[string]any) policy.Check {
	switch {
	case classify(i) == unsupportedCheck:
		return decodeUnsupported
	case i.kind == policy.FencePolicyKind:
		return FencePolicy
	case i.kind == policy.NodeHealthCheckKind:
		return NodeHealthCheck
	}
	return MachineHealthCheck
}

func (e *entry) budget(err error) policy.DisruptionBudget {
	b := DisruptionBudget(e.fields)
	b.Source = e.source
	if err != nil {
		b.Invalid = err.Error()
	}
	return b
}

func (e *entry) decode(s *policy.Snapshot, i id) error {
	switch classify(i) {
	case machine:
		m, err := Machine(e.fields)
		if err == nil {
			s.Machines = append(s.Machines, m)
		}
		return err
	case node:
		n, err := Node(e.fields)
		if err == nil {
			s.Nodes[n.Name] = &n
		}
		return err
	case cluster:
		c, err := Cluster(e.fields)
		if err == nil {
			s.Clusters = append(s.Clusters, c)
		}
		return err
	case lease:
		name, l, err := Lease(e.fields)
		if err == nil {
			s.Leases[name] = l
		}
		return err
	}
	h, err := BareMetalHost(e.fields)
	if err == nil {
		s.Hosts = append(s.Hosts, h)
	}
	return err
}
