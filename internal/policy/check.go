package policy

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The API group and kind of the checks that this version judges.
const (
	OpenShiftMachineAPI    = "machine.openshift.io/v1beta1"
	MachineHealthCheckKind = "MachineHealthCheck"
)

// Strategy is how a check wants its unhealthy targets remedied.
type Strategy string

// The strategies of an OpenShift MachineHealthCheck.
const (
	// DeleteMachines is the lineage's default: another Machine takes over.
	DeleteMachines Strategy = "DeleteMachine"
	// PowerCycleHosts is asked for by the external-baremetal annotation.
	PowerCycleHosts Strategy = "PowerCycle"
	// CreateRequests is asked for by a remediation template.
	CreateRequests Strategy = "CreateRequest"
)

// Check is one health check as its author wrote it, with every text already
// turned into values. A check that cannot be evaluated says so in Invalid and
// keeps its identity, so that it never vanishes silently.
type Check struct {
	Kind, APIVersion     string
	Namespace, Name      string
	UID, ResourceVersion string
	Annotations          map[string]string

	// Selector picks Machines of the check's own namespace. Nil picks none: it
	// could not be read.
	Selector   labels.Selector
	Conditions []UnhealthyCondition
	// StartupTimeout is how long a Machine may be without a Node; 0 switches
	// the start-up check off.
	StartupTimeout time.Duration
	// MaxUnhealthy is the limit as written; nil means all targets.
	MaxUnhealthy *intstr.IntOrString
	Strategy     Strategy
	Template     *Template
	Paused       bool

	// Invalid says why the check cannot be evaluated: field and value. // I18
	Invalid string
	// Disabled says why the lineage itself would ignore the check.
	Disabled string

	// Cluster restricts a check that came from a file to one cluster.
	Cluster string
	// Source is where the check came from: "cluster", or file:line.
	Source string
}

// UnhealthyCondition makes a target unhealthy when its Node has had this
// condition with this status for longer than Timeout.
type UnhealthyCondition struct {
	Type, Status string
	Timeout      time.Duration
}

// Template points to the object from which remediation requests are made.
type Template struct {
	APIVersion, Kind, Namespace, Name string
}

// Key names the check for people and for maps: "namespace/name".
func (c *Check) Key() string { return key(c.Namespace, c.Name) }

// Judged says whether this version evaluates checks of this kind at all.
func (c *Check) Judged() bool {
	return c.Kind == MachineHealthCheckKind && c.APIVersion == OpenShiftMachineAPI
}

// key joins a namespace and a name; cluster-wide objects have no namespace.
func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
