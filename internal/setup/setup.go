// Package setup makes the first configuration of fenced from what a look at a cluster found:
// fenced.yaml, hosts.d, a policy, the rights in the cluster, and the script that gives fenced its
// kubeconfig. It is pure: the daemon's program looks at the cluster, and fencectl writes the files.
package setup

import (
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/policy"
)

// Request says at which cluster to look: the input of `fenced --survey`.
type Request struct {
	Cluster    string     `json:"cluster"`
	Kubeconfig string     `json:"kubeconfig"`
	Management Management `json:"management"`
}

// Management is where the Machines of the Cluster API are, if not in the cluster itself.
type Management struct {
	Kubeconfig  string `json:"kubeconfig"`
	Namespace   string `json:"namespace"`
	ClusterName string `json:"clusterName"`
}

// Survey is what a look at a cluster found: the output of `fenced --survey`.
type Survey struct {
	Cluster string   `json:"cluster"`
	Servers []Server `json:"servers"` // the workload API, and a management API of its own
	// Kinds are those that fenced watches, Controllers the other remediators that it knows.
	Kinds       []Kind       `json:"kinds"`
	Controllers []Controller `json:"controllers"`
	Nodes       []Node       `json:"nodes"`
	// Clusters are the names of the Cluster API's Clusters.
	Clusters []string `json:"clusters"`
	// HostNamespaces have BareMetalHosts, and so the Secrets of their BMCs.
	HostNamespaces []string `json:"hostNamespaces"`
	// Medik8sLeases: the namespace medik8s-leases exists.
	Medik8sLeases bool `json:"medik8sLeases"`
	// Report is what the checks of the cluster, or the policy that init writes, would do.
	Report policy.Report `json:"report"`
	// Unseen is what could not be read.
	Unseen []Unseen `json:"unseen"`
}

// Server is one API server.
type Server struct {
	URL     string   `json:"url"`
	Version string   `json:"version"`
	Groups  []string `json:"groups"`
	// Namespace is the UID of the Namespace with the name of fenced's; "" if there is none, or that is not known.
	Namespace string `json:"namespace"`
}

// serves reports whether the API server serves an API group.
func (v Server) serves(group string) bool { return slices.Contains(v.Groups, group) }

// Kind is one kind of object.
type Kind struct {
	Management bool   `json:"management"` // it is on the management API
	Group      string `json:"group"`
	Kind       string `json:"kind"`
	Served     bool   `json:"served"`
	Objects    int    `json:"objects"`
	Problem    string `json:"problem"` // why its objects were not seen; "" if they were
}

// Controller is another remediation controller; it is alive if somebody holds its Lease, and if Problem
// is not empty, that is not known.
type Controller struct {
	Name    string `json:"name"`
	Lease   string `json:"lease"`
	Holder  string `json:"holder"`
	Problem string `json:"problem"`
	// Elsewhere are namespaces in which such a Lease has a holder and does not count.
	Elsewhere []string `json:"elsewhere,omitempty"`
}

// Node is one Node, and what fenced would need to fence its host.
type Node struct {
	Name         string `json:"name"`
	Machine      string `json:"machine"` // "namespace/name", "" without one
	UUID         string `json:"uuid"`
	ControlPlane bool   `json:"controlPlane"`
	// Hostname is its label of that name if it is of the control plane and no other label says so.
	Hostname string `json:"hostname,omitempty"`
	Ready    bool   `json:"ready"`
	// BareMetalHost and BMC are its "namespace/name" and address; empty if no BareMetalHost names one.
	BareMetalHost string `json:"bareMetalHost"`
	BMC           string `json:"bmc"`
	// Contested says who else would act on the host now, so that fenced would refuse. It is asked of
	// the first Nodes only; Asked says of which.
	Asked     bool   `json:"asked"`
	Contested string `json:"contested"`
}

// Unseen is something that could not be read, and why that matters.
type Unseen struct {
	What    string `json:"what"`
	Error   string `json:"error"`
	Matters string `json:"matters"`
}

// The distributions that init tells apart.
const (
	OpenShift = "OpenShift"
	K3s       = "k3s"
	RKE2      = "RKE2"
	Other     = "Kubernetes"
)

// Distribution says which Kubernetes it is.
func (s *Survey) Distribution() string {
	switch version := s.Servers[0].Version; {
	case s.Servers[0].serves("config.openshift.io"):
		return OpenShift
	case strings.Contains(version, "+k3s"):
		return K3s
	case strings.Contains(version, "+rke2"):
		return RKE2
	}
	return Other
}

// HasChecks reports whether the cluster itself has checks, or may have some that could not be
// read.
func (s *Survey) HasChecks() bool {
	for _, k := range s.Kinds {
		if policy.IsCheckKind(k.Kind) && k.Objects > 0 {
			return true
		}
	}
	return slices.ContainsFunc(s.Unseen, func(u Unseen) bool { return policy.IsCheckKind(strings.SplitN(u.What, ".", 2)[0]) })
}

// Apart reports whether the Cluster API has an API server of its own.
func (s *Survey) Apart() bool { return len(s.Servers) > 1 }

// matters says what follows if a kind cannot be read.
var matters = map[string]string{
	"Node":                         "without the Nodes fenced can fence nothing, and init cannot list the hosts",
	"Pod":                          "the members of etcd and the control-plane hosts are known by their Pods: without them no host is fenced",
	"BareMetalHost":                "BMCs of BareMetalHosts are not listed, and each host needs an entry in hosts.d",
	"Machine":                      "which Node is on which Machine is not known, nor who else would act on it",
	"Cluster":                      "the checks of the Cluster API cannot be evaluated",
	"ClusterVersion":               "whether OpenShift is being upgraded is not known",
	policy.MachineHealthCheckKind:  "which hosts other controllers remediate is not known, nor what fenced would do",
	policy.NodeHealthCheckKind:     "which hosts other controllers remediate is not known, nor what fenced would do",
	"FencedRemediation":            "which requests fenced would carry out is not known",
	"FencedRemediationTemplate":    "which requests fenced would carry out is not known",
	"Lease":                        "whether this remediator is alive is not known; fenced refuses to act beside one that is",
	"Namespace " + medik8sLeases:   "whether medik8s is installed is not known",
	"Namespace " + Account:         "whether somebody else has made this namespace is not known; the script asks again before it grants anything",
	"who else would act on a Node": "fenced refuses (Contested) while it cannot read that",
}

const medik8sLeases = policy.NodeLockNamespace

// NotSeen is what could not be read, with why it matters. kind is what it is an instance of.
func NotSeen(what, kind, problem string) Unseen {
	why := matters[kind]
	if why == "" {
		why = "the checks that make such requests cannot be evaluated"
	}
	return Unseen{What: what, Error: strings.ReplaceAll(problem, "\n", "; "), Matters: why}
}
