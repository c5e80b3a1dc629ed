package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/configs"
)

// Account is the ServiceAccount of fenced, and the name of its namespace. The script makes the namespace: a
// manifest that has it would take over one of somebody else, and delete it with all that is in it.
const Account = "fenced"

// tokenSecret is the Secret with the token of the ServiceAccount.
const tokenSecret = "fenced-token"

// account is the ServiceAccount, and what the rights are bound to.
const account = `apiVersion: v1
kind: ServiceAccount
metadata: {name: fenced, namespace: fenced}
`

// token has Kubernetes make a token that does not expire. It ends with the Secret.
const token = `---
apiVersion: v1
kind: Secret
metadata: {name: fenced-token, namespace: fenced, annotations: {kubernetes.io/service-account.name: fenced}}
type: kubernetes.io/service-account-token
`

// secretsRole is the ClusterRole that reads Secrets. It is bound only where BareMetalHosts are.
const secretsRole = "fenced-secrets"

// secretsBinding binds it in one namespace.
const secretsBinding = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: fenced-secrets, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fenced-secrets}
subjects: [{kind: ServiceAccount, name: fenced, namespace: fenced}]
`

// leaderGroups are the API groups without which nobody holds a leader Lease that a rule names.
var leaderGroups = map[string]string{
	"controller-leader-election-capi":  "cluster.x-k8s.io",
	"controller-leader-election-capm3": "cluster.x-k8s.io",
	"e1f13584.medik8s.io":              "remediation.medik8s.io",
}

// side is one of the two parts of the rights.
type side int

const (
	both side = iota
	workload
	management
)

// rights makes the manifest for one API server from the files that the package installs: the rules for
// what it serves, bound to the ServiceAccount.
func (s *Survey) rights(o *Options, of side) ([]byte, error) {
	server := s.Servers[0]
	if of == management {
		server = s.Servers[1]
	}
	sources := [][]byte{configs.Evaluate}
	if o.Rights == RightsObserve {
		sources = [][]byte{configs.Observe}
	} else if s.Medik8sLeases && of != management {
		sources = append(sources, configs.Medik8s)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# The rights of fenced (mode %s) on the API server\n# %s: the rules of the package for the kinds that it\n"+
		"# serves, for the ServiceAccount %s/%s. Run fencectl init again when you install OpenShift's, the Cluster API's, Metal3's or\n"+
		"# medik8s' kinds, or those of fenced: without the rules fenced cannot see them, and evaluates nothing. The same for a new namespace with\n"+
		"# BareMetalHosts: fenced may read Secrets only in those that init saw. Applied over rbac.yaml of the package, this takes the rights\n"+
		"# from the user \"fenced\". Not the manifest but the script makes the namespace %s: it takes over none of somebody else.\n", o.Rights, comment(server.URL), Account, Account, Account)
	out.WriteString(account)
	if o.TokenDuration == 0 {
		out.WriteString(token)
	}
	for _, source := range sources {
		if err := rightsFrom(&out, source, of, server.Groups); err != nil {
			return nil, err
		}
	}
	if of != workload && slices.Contains(server.Groups, "metal3.io") {
		for _, namespace := range s.HostNamespaces {
			fmt.Fprintf(&out, secretsBinding, quote(namespace))
		}
	}
	return out.Bytes(), nil
}

// rightsFrom appends the documents of one source.
func rightsFrom(out *bytes.Buffer, source []byte, of side, groups []string) error {
	in := yaml.NewDecoder(bytes.NewReader(source))
	for first := true; ; first = false {
		var doc yaml.Node
		if err := in.Decode(&doc); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the rights of the package: %w", err)
		}
		object := doc.Content[0]
		if first { // it describes the file that it is from
			doc.HeadComment, object.HeadComment, object.Content[0].HeadComment = "", "", ""
		}
		if !belongs(object, of, groups) {
			continue
		}
		restrict(object, groups)
		bindToAccount(object)
		out.WriteString("---\n")
		enc := yaml.NewEncoder(out)
		enc.SetIndent(2)
		if err := enc.Encode(&doc); err != nil {
			return fmt.Errorf("write the rights of the cluster: %w", err)
		}
	}
}

// belongs reports whether an object is for a side. The management part is what has that name, and the role for the Secrets of
// BareMetalHosts; it is for hosts and Machines that Kubernetes alone does not have.
func belongs(object *yaml.Node, of side, groups []string) bool {
	name := value(get(object, "metadata"), "name")
	if name == secretsRole && !slices.Contains(groups, "metal3.io") {
		return false
	}
	ofManagement := name == secretsRole || strings.HasPrefix(name, "fenced-management")
	if of != both {
		return ofManagement == (of == management)
	}
	return !ofManagement || slices.Contains(groups, "metal3.io") || slices.Contains(groups, "cluster.x-k8s.io")
}

// restrict drops the rules of a role for what the server does not serve.
func restrict(object *yaml.Node, groups []string) {
	if rules := get(object, "rules"); rules != nil {
		rules.Content = slices.DeleteFunc(rules.Content, func(rule *yaml.Node) bool { return !needed(rule, groups) })
	}
}

// needed reports whether a server has what a rule is about. It keeps the names of a rule's objects that
// may exist there.
func needed(rule *yaml.Node, groups []string) bool {
	served := func(group string) bool { return group == "" || slices.Contains(groups, group) }
	if !slices.ContainsFunc(words(rule, "apiGroups"), served) {
		return false
	}
	if slices.Contains(words(rule, "resources"), "metal3remediations/status") { // metal3Remediations is off
		return false
	}
	names := get(rule, "resourceNames")
	if names == nil {
		return true
	}
	names.Content = slices.DeleteFunc(names.Content, func(name *yaml.Node) bool {
		group, leader := leaderGroups[name.Value]
		return leader && !served(group)
	})
	return len(names.Content) > 0
}

// bindToAccount replaces the user "fenced" in the subjects of a binding.
func bindToAccount(object *yaml.Node) {
	if subjects := get(object, "subjects"); subjects != nil {
		subject := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for _, word := range []string{"kind", "ServiceAccount", "name", Account, "namespace", Account} {
			subject.Content = append(subject.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: word})
		}
		subjects.Content = []*yaml.Node{subject}
	}
}

func get(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; mapping != nil && i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func value(mapping *yaml.Node, key string) string {
	if n := get(mapping, key); n != nil {
		return n.Value
	}
	return ""
}

// words is a list of texts.
func words(mapping *yaml.Node, key string) []string {
	var list []string
	if n := get(mapping, key); n != nil {
		for _, item := range n.Content {
			list = append(list, item.Value)
		}
	}
	return list
}
