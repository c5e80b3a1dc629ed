package setup

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
)

// Rights says what fenced may do in the cluster.
type Rights string

// The rights that init can write: enough to act once a person arms the cluster, or to look only.
const (
	RightsEvaluate Rights = "evaluate"
	RightsObserve  Rights = "observe"
)

// Options are what a person chose.
type Options struct {
	Version string // of fenced
	Dir     string // where the files will be; absolute
	Rights  Rights
	// TokenDuration is for how long the token of the ServiceAccount is asked for; 0: it does not expire.
	TokenDuration time.Duration
	// Server replaces the address of the workload API server in the kubeconfig of fenced; "" keeps it.
	Server string
	// ExistingNamespace: a Namespace with the name of fenced's, which somebody else may have made, is accepted.
	ExistingNamespace bool
	// BMCs are the addresses of the BMCs of Nodes, and User the name to log in with.
	BMCs map[string]string
	User string
	// Request says where the administrator's kubeconfigs are.
	Request Request
}

// File is one file that init writes, below Options.Dir.
type File struct {
	Path   string `json:"path"`
	What   string `json:"what"`
	Script bool   `json:"-"` // it is run
	Text   []byte `json:"-"`
}

// Files are all files for a cluster.
func (s *Survey) Files(o *Options) ([]File, error) {
	files := []File{
		{Path: "fenced.yaml", What: "the configuration, in mode observe", Text: s.fencedYAML(o)},
		{Path: path.Join("hosts.d", s.Cluster+".yaml"), What: "the BMCs of the hosts", Text: s.hostsYAML(o)},
	}
	if text := s.StarterPolicy(); text != nil {
		files = append(files, File{Path: path.Join("policies.d", s.Cluster+".yaml"), What: "a policy for the workers, because the cluster has no checks", Text: text})
	}
	of := both
	if s.Apart() {
		of = workload
		text, err := s.rights(o, management)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: s.managementManifest(), What: "the rights of fenced in the management cluster", Text: text})
	}
	text, err := s.rights(o, of)
	if err != nil {
		return nil, err
	}
	return append(files,
		File{Path: s.manifest(), What: "the rights of fenced in the cluster", Text: text},
		File{Path: s.script(), What: "grants the rights, and writes the kubeconfig of fenced", Script: true, Text: s.mintScript(o)}), nil
}

func (s *Survey) manifest() string             { return s.Cluster + "-rbac.yaml" }
func (s *Survey) managementManifest() string   { return s.Cluster + "-management-rbac.yaml" }
func (s *Survey) kubeconfig() string           { return s.Cluster + ".kubeconfig" }
func (s *Survey) managementKubeconfig() string { return s.Cluster + "-management.kubeconfig" }
func (s *Survey) script() string               { return s.Cluster + "-kubeconfig.sh" }

// NamespaceRecord is the file in which the script notes the UID of the Namespace of fenced on an API server: that of
// the workload (0) or of the management cluster.
func (s *Survey) NamespaceRecord(server int) string {
	if server > 0 {
		return s.Cluster + "-management-namespace.uid"
	}
	return s.Cluster + "-namespace.uid"
}

// whyKeepNodes says in comments why step 2 should taint a Node in place of deleting it; "" if it may delete.
func (s *Survey) whyKeepNodes() string {
	switch d := s.Distribution(); {
	case d == K3s, d == RKE2:
		return fmt.Sprintf("# %s keeps the password of a node in a Secret that ends with the Node, and an agent whose join token has expired may not\n"+
			"# come back after its Node was deleted. So the Node is tainted, and keeps its labels.\n", d)
	case slices.ContainsFunc(s.Kinds, func(k Kind) bool { return k.Kind == policy.NodeHealthCheckKind && k.Objects > 0 }):
		return "# A NodeHealthCheck forgets a Node that is deleted: it does not count it any more, and never goes on to its next template.\n" +
			"# So the Node is tainted, and stays.\n"
	case s.Servers[0].serves("ceph.rook.io"):
		return "# Rook blocks the clients of a lost node in Ceph (NetworkFence) when its Node has the out-of-service taint, not when the\n" +
			"# Node is deleted. So the Node is tainted, and stays.\n"
	case s.Servers[0].serves("longhorn.io"):
		return "# Longhorn may delete its own record of a node, with disks and tags, when the Node is deleted. So the Node is tainted, and stays.\n"
	}
	return ""
}

// fencedYAML is the configuration. Its paths begin at its own directory.
func (s *Survey) fencedYAML(o *Options) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `# Written by fencectl init of fenced %s for %s.
# Every other key has its default: see fenced.yaml(5), and /usr/share/fenced/fenced.yaml.
clusters:
  - name: %s
    kubeconfig: %s
`, comment(o.Version), comment(s.Servers[0].URL), quote(s.Cluster), quote(s.kubeconfig()))
	if s.Apart() {
		m := o.Request.Management
		fmt.Fprintf(&out, "    management: {kubeconfig: %s, namespace: %s, clusterName: %s}\n", quote(s.managementKubeconfig()), quote(m.Namespace), quote(m.ClusterName))
	}
	out.WriteString(`    # observe: evaluate and explain, begin nothing until "fencectl arm"; an admin may fence one node by hand.
    mode: observe
hosts: hosts.d
policies: policies.d
`)
	if why := s.whyKeepNodes(); why != "" {
		out.WriteString(why + "isolation: outOfServiceTaint\n")
	}
	return out.Bytes()
}

// hostsYAML has an entry for each Node without a BareMetalHost. One whose BMC nobody named is a
// comment to be completed.
func (s *Survey) hostsYAML(o *Options) []byte {
	var known, open strings.Builder
	with := s.nodesWithUUID()
	for _, n := range s.Nodes {
		address, named := o.BMCs[n.Name]
		if n.BMC != "" && !named {
			continue
		}
		into, prefix := &known, ""
		if !named {
			into, prefix, address = &open, "# ", placeholder
		}
		fmt.Fprintf(into, "%[1]s  - node: %[2]s\n", prefix, quote(n.Name))
		switch why := whyNoUUID(n, with); {
		case why != "":
			fmt.Fprintf(into, "%s    # without uuid: %s\n", prefix, why)
		case n.UUID != "":
			fmt.Fprintf(into, "%s    uuid: %s\n", prefix, quote(n.UUID))
		}
		fmt.Fprintf(into, "%[1]s    bmc: {address: %[2]s, username: %[3]s, passwordFile: %[4]s}\n", prefix,
			quote(BMCAddress(address)), quote(o.User), "../credentials/bmc")
	}
	var out strings.Builder
	out.WriteString("# The BMCs of hosts that have no BareMetalHost: see hosts.d/example.yaml of the package. The password is in a file with owner\n" +
		"# root:fenced and mode 0640; a BMC with another password needs a file of its own.\n")
	if known.Len() == 0 {
		out.WriteString("hosts: []\n")
	} else {
		out.WriteString("hosts:\n" + known.String())
	}
	if open.Len() > 0 {
		out.WriteString("# Without a BMC so far. Fill in ADDRESS (ipmi://192.0.2.13 or redfish://192.0.2.13), and remove the \"# \"")
		if known.Len() == 0 {
			out.WriteString(" and the \" []\" above")
		}
		out.WriteString(".\n" + open.String())
	}
	return []byte(out.String())
}

// whyNoUUID says why the entry of a Node does not pin the UUID that the Node reports, and what to do; "" if it can, or
// if the Node reports none. internal/config refuses a UUID that identifies no machine, or that two entries have. // I8, I9
func whyNoUUID(n Node, with map[string]int) string {
	switch {
	case n.UUID == "":
		return ""
	case !bmc.UsableUUID(n.UUID):
		return fmt.Sprintf("%s is what a firmware reports that knows none; enroll the host: fencectl bmc enroll %s --reason WHY", comment(n.UUID), comment(n.Name))
	}
	sharers, forms := 0, bmc.UUIDForms(n.UUID)
	slices.Sort(forms)
	for _, form := range slices.Compact(forms) {
		sharers += with[form]
	}
	if sharers > 1 {
		return fmt.Sprintf("another Node has %s, too, so fenced fences neither; give each machine its own UUID in the firmware", comment(n.UUID))
	}
	return ""
}

// nodesWithUUID counts the Nodes that report a usable UUID, by its text in hex.
func (s *Survey) nodesWithUUID() map[string]int {
	count := map[string]int{}
	for _, n := range s.Nodes {
		if forms := bmc.UUIDForms(n.UUID); len(forms) > 0 {
			count[forms[0]]++
		}
	}
	return count
}

// placeholder is where a person fills in the address of a BMC.
const placeholder = "ADDRESS"

// BMCAddress adds the scheme that people leave out.
func BMCAddress(address string) string {
	if address == placeholder || strings.Contains(address, "://") {
		return address
	}
	return "ipmi://" + address
}

// StarterPolicy is a policy for a cluster without checks; nil if it has some. Its limit lets
// one host at a time be fenced, however small the cluster is. It selects no Node of the control plane.
func (s *Survey) StarterPolicy() []byte {
	if s.HasChecks() || slices.ContainsFunc(s.Kinds, func(k Kind) bool { return k.Kind == "Machine" && k.Objects > 0 }) {
		return nil
	}
	var workers strings.Builder
	for _, label := range policy.ControlPlaneLabels {
		fmt.Fprintf(&workers, "    - {key: %s, operator: DoesNotExist}\n", label)
	}
	if names := s.unlabelled(); len(names) > 0 {
		fmt.Fprintf(&workers, "    # Their Pods show that they are of the control plane, and no label says so.\n    - {key: kubernetes.io/hostname, operator: NotIn, values: [%s]}\n",
			strings.Join(names, ", "))
	}
	return []byte(`# Which nodes fenced power-cycles: see fenced-policy(5). Nothing begins before "fencectl arm".
apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: workers}
spec:
  nodeSelector:
    matchExpressions:
` + workers.String() + `  unhealthyConditions:
  - {type: Ready, status: Unknown, timeout: 300s}
  limit: 1
  strategy: PowerCycle
`)
}

// unlabelled are the hostnames, quoted, of the Nodes of which only their Pods show that they are of the control plane.
func (s *Survey) unlabelled() (names []string) {
	for _, n := range s.Nodes {
		if n.Hostname != "" {
			names = append(names, quote(n.Hostname))
		}
	}
	return names
}

// quote writes a text of the cluster or of a person as YAML, whatever is in it.
func quote(text string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Style: yaml.DoubleQuotedStyle}
	if plainText(text) {
		n.Style = 0
	}
	out, err := yaml.Marshal(&n)
	if err != nil { // a text can always be written
		panic(err)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// plainText reports whether a text needs no quotes, not even in a flow mapping.
func plainText(text string) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._/", r)
	}) < 0
}

// comment is a text in a comment: nothing in it ends the line.
func comment(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f {
			return '?'
		}
		return r
	}, text)
}

// IsLoopback reports whether an API server is reachable from its own host only.
func (v Server) IsLoopback() bool {
	u, err := url.Parse(v.URL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
