package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// DefaultFile is where the daemon looks without --config.
const DefaultFile = "/etc/fenced/fenced.yaml"

// The words of Cluster.Mode.
const (
	ModeObserve  = "observe"  // judge and explain, never act
	ModeEvaluate = "evaluate" // judge the checks and act
	ModeRespond  = "respond"  // act only on remediation requests, which others make
)

// The words of Guards.ControlPlane.
const (
	ControlPlaneQuorum = "quorum" // one at a time, with quorum to spare
	ControlPlaneNever  = "never"
)

// IsolationAuto lets Config.ControlPlaneIsolation follow the kind of cluster;
// its other words are those of remediate.Isolation.
const IsolationAuto = "auto"

// Config is fenced.yaml with every default filled in and every path absolute.
type Config struct {
	File string `yaml:"-"` // the main file

	// Instance names this daemon where several might act: in the annotation
	// fenced.io/evaluator. Empty is the host's name.
	Instance string    `yaml:"instance" is:"clusterName"`
	Clusters []Cluster `yaml:"clusters"`
	Hosts    string    `yaml:"hosts" is:"path"`
	// BMCNetworks are where the BMCs of BareMetalHosts may be; empty: anywhere, but for
	// what Networks of package bmc excepts.
	BMCNetworks           []string       `yaml:"bmcNetworks" is:"network"`
	BareMetalHosts        BareMetalHosts `yaml:"bareMetalHosts"`
	Policies              string         `yaml:"policies" is:"path"`
	State                 State          `yaml:"state"`
	Audit                 Audit          `yaml:"audit"`
	Control               Control        `yaml:"control"`
	Metrics               Metrics        `yaml:"metrics"`
	Log                   Log            `yaml:"log"`
	Guards                Guards         `yaml:"guards"`
	Power                 Power          `yaml:"power"`
	Sweep                 Sweep          `yaml:"sweep"`
	Watchdog              Watchdog       `yaml:"watchdog"`
	Isolation             string         `yaml:"isolation" is:"deleteNode|outOfServiceTaint"`
	ReleasePods           bool           `yaml:"releasePods"`
	ControlPlaneIsolation string         `yaml:"controlPlaneIsolation" is:"auto|deleteNode|outOfServiceTaint"`
	// NeverRestore are patterns of keys that a Node does not get back in step 5, beside those that
	// package k8swatch knows.
	NeverRestore []string `yaml:"neverRestore" is:"keyPattern"`
}

// Cluster is one cluster to watch.
type Cluster struct {
	Name        string     `yaml:"name" is:"clusterName" empty:"no"`
	Kubeconfig  string     `yaml:"kubeconfig" is:"path" empty:"no"`
	Management  Management `yaml:"management"`
	Mode        string     `yaml:"mode" is:"observe|evaluate|respond"`
	Namespaces  []string   `yaml:"namespaces" is:"namespace"`
	Reprovision bool       `yaml:"reprovision"`
	// ControllerNamespaces are those in which the leader Lease of another remediator counts, beside
	// the ones where they are installed by default.
	ControllerNamespaces []string `yaml:"controllerNamespaces" is:"namespace"`
	// Metal3Remediations: fenced carries out the requests of Metal3's provider.
	Metal3Remediations bool `yaml:"metal3Remediations"`
	// RequestNamespaces are those whose FencedRemediations may name any Node.
	RequestNamespaces []string `yaml:"requestNamespaces" is:"namespace"`
	// RemediateReadyNodes: fenced obeys remediateReadyNodes of a FencedRemediation.
	RemediateReadyNodes bool `yaml:"remediateReadyNodes"`
}

// RequestScope lists what remediation requests may do beyond the default.
func (c Cluster) RequestScope() (list []string) {
	if c.Metal3Remediations {
		list = append(list, "metal3Remediations")
	}
	if c.RemediateReadyNodes {
		list = append(list, "remediateReadyNodes")
	}
	for _, name := range c.RequestNamespaces {
		list = append(list, "requestNamespaces "+name)
	}
	return list
}

// Management is where a Cluster API keeps Machines and checks; an empty
// Kubeconfig means the cluster itself. ClusterName picks one of the clusters
// that the Cluster API manages there.
type Management struct {
	Kubeconfig  string `yaml:"kubeconfig" is:"path"`
	Namespace   string `yaml:"namespace" is:"namespace"`
	ClusterName string `yaml:"clusterName"`
}

// BareMetalHosts is what such an object may say about its BMC: to be asked over http,
// and without a look at its certificate.
type BareMetalHosts struct {
	PlainHTTP  bool `yaml:"plainHTTP"`
	Unverified bool `yaml:"unverified"`
}

// State says where the daemon keeps its records.
type State struct {
	Engine string `yaml:"engine" is:"bbolt|etcd"`
	Path   string `yaml:"path" is:"path" empty:"no"`
	Etcd   Etcd   `yaml:"etcd"`
}

// EngineEtcd is the engine of state that several daemons share.
const EngineEtcd = "etcd"

// Etcd is the external store for several daemons.
type Etcd struct {
	Endpoints []string `yaml:"endpoints"`
	CA        string   `yaml:"ca" is:"path"`
	Cert      string   `yaml:"cert" is:"path"`
	Key       string   `yaml:"key" is:"path"`
	Prefix    string   `yaml:"prefix"`
}

// Audit says where the audit log is; an empty Path is beside the state.
type Audit struct {
	Path string `yaml:"path" is:"path"`
}

// Control is the socket of fencectl and who may do what there.
type Control struct {
	Socket string `yaml:"socket" is:"socket" empty:"no"`
	// Group is that of the socket: its members may connect, and their roles say what they
	// may do. Empty: the daemon's own.
	Group string `yaml:"group" is:"group"`
	Roles Roles  `yaml:"roles"`
	// PauseFile pauses everything while it exists; empty: none is looked for.
	PauseFile string `yaml:"pauseFile" is:"path"`
	// TwoPersons are the orders that two persons must give. What stops something is none
	// of them: one person suffices.
	TwoPersons []string `yaml:"twoPersons" is:"fence|unfence|release|resume|retry|confirm-off|arm|bmc-enroll|bmc-unfreeze|bmc-release"`
}

// Roles lists principals, to be read by ParsePrincipal.
type Roles struct {
	Viewer   []string `yaml:"viewer" is:"principal"`
	Operator []string `yaml:"operator" is:"principal"`
	Admin    []string `yaml:"admin" is:"principal"`
}

// Metrics is where metrics are served; an empty Listen is nowhere.
type Metrics struct {
	Listen string `yaml:"listen" is:"listen"`
}

// Log is how much is logged.
type Log struct {
	Level string `yaml:"level" is:"debug|info|warn|error"`
}

// Guards hold a remediation back; see docs/safety.md.
type Guards struct {
	QuietPeriod                time.Duration `yaml:"quietPeriod" is:"notNegative"`
	MaxInFlight                int           `yaml:"maxInFlight" is:"positive"`
	MaxInFlightPercent         int           `yaml:"maxInFlightPercent" is:"percent"`
	MaxInFlightPerZone         int           `yaml:"maxInFlightPerZone" is:"positive"`
	MaxInFlightTotal           int           `yaml:"maxInFlightTotal" is:"positive"`
	StartsPerHour              int           `yaml:"startsPerHour" is:"notNegative"`
	MaxDeletions               int           `yaml:"maxDeletions" is:"positive"`
	DeletionsPerHour           int           `yaml:"deletionsPerHour" is:"notNegative"`
	DeletionTimeout            time.Duration `yaml:"deletionTimeout" is:"positive"`
	ZoneKey                    string        `yaml:"zoneKey" is:"labelKey" empty:"no"`
	RackKey                    string        `yaml:"rackKey" is:"labelKey" empty:"no"`
	ZoneBreakerPercent         int           `yaml:"zoneBreakerPercent" is:"percent"`
	ZoneBreakerMin             int           `yaml:"zoneBreakerMin" is:"positive"`
	MinPowerInterval           time.Duration `yaml:"minPowerInterval" is:"notNegative"`
	MaxAttempts                int           `yaml:"maxAttempts" is:"positive"`
	MaxFencesPerDay            int           `yaml:"maxFencesPerDay" is:"positive"`
	ViewMaxAge                 time.Duration `yaml:"viewMaxAge" is:"positive"`
	ClockSkewMax               time.Duration `yaml:"clockSkewMax" is:"positive"`
	ControlPlane               string        `yaml:"controlPlane" is:"quorum|never"`
	ExternalEtcd               bool          `yaml:"externalEtcd"`
	PowerOnFoundOff            bool          `yaml:"powerOnFoundOff"`
	DeleteControlPlaneMachines bool          `yaml:"deleteControlPlaneMachines"`
	MachineFailureReason       bool          `yaml:"machineFailureReason"`
	WaitForUpgrade             bool          `yaml:"waitForUpgrade"`
	Identity                   string        `yaml:"identity" is:"required|pinned|off"`
}

// Power holds the deadlines of a run.
type Power struct {
	ReadTimeout      time.Duration `yaml:"readTimeout" is:"positive"`
	OffDeadline      time.Duration `yaml:"offDeadline" is:"positive"`
	OffReadSpacing   time.Duration `yaml:"offReadSpacing" is:"positive"`
	OnDeadline       time.Duration `yaml:"onDeadline" is:"positive"`
	APITimeout       time.Duration `yaml:"apiTimeout" is:"positive"`
	PodsGoneTimeout  time.Duration `yaml:"podsGoneTimeout" is:"notNegative"`
	RestoreTimeout   time.Duration `yaml:"restoreTimeout" is:"positive"`
	RunTimeout       time.Duration `yaml:"runTimeout" is:"positive"`
	NodeReadyTimeout time.Duration `yaml:"nodeReadyTimeout" is:"positive"`
	SessionTimeout   time.Duration `yaml:"sessionTimeout" is:"notNegative"`
	RetryInterval    time.Duration `yaml:"retryInterval" is:"notNegative"`
}

// Sweep is the health check of all BMCs; an Interval of 0 is none.
type Sweep struct {
	Interval time.Duration `yaml:"interval" is:"sweepInterval"`
}

// Watchdog is that of this host's own BMC, which powers the host down when the
// daemon hangs while it may fence. Device is the N of /dev/ipmiN.
type Watchdog struct {
	Enabled bool          `yaml:"enabled"`
	Timeout time.Duration `yaml:"timeout" is:"watchdogTimeout"`
	Device  int           `yaml:"device" is:"notNegative"`
}

// ClusterNames gives the clusters in the order of the file.
func (c Config) ClusterNames() []string {
	names := make([]string, 0, len(c.Clusters))
	for _, cl := range c.Clusters {
		names = append(names, cl.Name)
	}
	return names
}

// AuditPath is where the audit log is: each daemon has its own, whatever it shares
// with others.
func (c Config) AuditPath() string {
	if c.Audit.Path != "" {
		return c.Audit.Path
	}
	return filepath.Join(filepath.Dir(c.State.Path), "audit.jsonl")
}

// ConfDir is the directory whose files are laid over the main file.
func (c Config) ConfDir() string { return filepath.Join(filepath.Dir(c.File), "conf.d") }

// Principal is a local user or group that a role is given to.
type Principal struct {
	Group bool
	Name  string // a name, or a number in digits
}

var principalName = lazily(`^([A-Za-z_][A-Za-z0-9_.@\\-]{0,254}\$?|[0-9]{1,10})$`)

// ParsePrincipal reads user:NAME or group:NAME. Whether the system knows the
// name is asked when a request comes, so that people may be added later.
func ParsePrincipal(text string) (Principal, error) {
	kind, name, ok := strings.Cut(text, ":")
	if !ok || (kind != "user" && kind != "group") || !principalName().MatchString(name) {
		return Principal{}, fmt.Errorf("%q is not user:NAME or group:NAME", text)
	}
	return Principal{Group: kind == "group", Name: name}, nil
}

// ViewGroup is the group of those who may look. The daemon's own group reads every
// password.
const ViewGroup = "fenced-view"

// Default is a Config with every default and no cluster.
func Default() Config {
	return Config{
		Hosts:    "/etc/fenced/hosts.d",
		Policies: "/etc/fenced/policies.d",
		State:    State{Engine: "bbolt", Path: "/var/lib/fenced/state.db", Etcd: Etcd{Prefix: "/fenced/"}},
		Control: Control{
			Socket: "/run/fenced/fenced.sock", Group: ViewGroup, Roles: Roles{Viewer: []string{"group:" + ViewGroup}}, PauseFile: "/var/lib/fenced/paused",
		},
		Metrics: Metrics{Listen: "127.0.0.1:9870"},
		Log:     Log{Level: "info"},
		Guards: Guards{
			QuietPeriod:        300 * time.Second,
			MaxInFlight:        5,
			MaxInFlightPercent: 10,
			MaxInFlightPerZone: 1,
			MaxInFlightTotal:   20,
			StartsPerHour:      30,
			MaxDeletions:       1,
			DeletionsPerHour:   30,
			DeletionTimeout:    30 * time.Minute,
			ZoneKey:            "topology.kubernetes.io/zone",
			RackKey:            "topology.kubernetes.io/rack",
			ZoneBreakerPercent: 55,
			ZoneBreakerMin:     3,
			MinPowerInterval:   180 * time.Second,
			MaxAttempts:        3,
			MaxFencesPerDay:    3,
			ViewMaxAge:         60 * time.Second,
			ClockSkewMax:       5 * time.Second,
			ControlPlane:       ControlPlaneQuorum,
			PowerOnFoundOff:    true,
			Identity:           "required",
		},
		Power: Power{
			ReadTimeout:      5 * time.Second,
			OffDeadline:      60 * time.Second,
			OffReadSpacing:   3 * time.Second,
			OnDeadline:       180 * time.Second,
			APITimeout:       120 * time.Second,
			PodsGoneTimeout:  70 * time.Second,
			RestoreTimeout:   10 * time.Minute,
			RunTimeout:       2 * time.Hour,
			NodeReadyTimeout: 20 * time.Minute,
			SessionTimeout:   60 * time.Second,
			RetryInterval:    time.Minute,
		},
		Sweep:                 Sweep{Interval: 60 * time.Second},
		Watchdog:              Watchdog{Timeout: 60 * time.Second},
		Isolation:             "deleteNode",
		ControlPlaneIsolation: IsolationAuto,
	}
}

// setDefaults is how the reader begins each element of the list.
func (c *Cluster) setDefaults() { *c = Cluster{Mode: ModeEvaluate, Reprovision: true} }
