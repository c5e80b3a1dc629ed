package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/bmc"
)

// RedactedFile is a file of the configuration as it may leave this host.
type RedactedFile struct {
	Name string // fenced.yaml, or NAME of conf.d, hosts.d or policies.d with its directory
	Text []byte
	Err  error // why there is no text; it repeats no value that may be a secret
}

const (
	// maxRedacted bounds a file that is shown, in bytes.
	maxRedacted = 4 << 20
	// maxRedactedFiles bounds the files of one directory.
	maxRedactedFiles = 200
)

// Redacted gives the files of the configuration without what is, or may be, a secret. It opens no
// file that they name: no kubeconfig, key or password. // I25
//
// Only what is known to be harmless is shown: the value of a key that fenced.yaml or hosts.d has, if
// it is a value of that key, and the documents of policies.d that are of a kind of policies.d. There
// are no comments: somebody may have noted a password there.
func Redacted(file string) []RedactedFile {
	c, _ := load(file, nil) // what is wrong is told by whoever checks the files
	all := []RedactedFile{redactFile("fenced.yaml", file, redactAs[Config])}
	if c.File == "" { // it cannot be read, so it says of no directory where it is
		return all
	}
	all = append(all, redactDir("conf.d", c.ConfDir(), redactAs[Config])...)
	all = append(all, redactDir("hosts.d", c.Hosts, redactAs[hostsFile])...)
	return append(all, redactDir("policies.d", c.Policies, redactPolicies)...)
}

// redaction turns the text of a file into one that may be shown.
type redaction func(file string, data []byte) ([]byte, error)

func redactDir(name, dir string, by redaction) (all []RedactedFile) {
	files, err := listFiles(dir)
	if err != nil {
		return []RedactedFile{{Name: name, Err: err}}
	}
	for i, file := range files {
		if i == maxRedactedFiles {
			return append(all, RedactedFile{Name: name, Err: fmt.Errorf("%d files of %s are left out: at most %d are shown", len(files)-i, dir, i)})
		}
		all = append(all, redactFile(name+"/"+filepath.Base(file), file, by))
	}
	return all
}

func redactFile(name, file string, by redaction) RedactedFile {
	data, err := readBounded(file, maxRedacted)
	if err != nil {
		return RedactedFile{Name: name, Err: err}
	}
	text, err := by(file, data)
	return RedactedFile{Name: name, Text: text, Err: err}
}

// redactAs shows a file whose keys are those of T.
func redactAs[T any](file string, data []byte) ([]byte, error) {
	root, err := parseYAML(file, data)
	if err != nil || root == nil {
		return nil, err
	}
	redact(root, reflect.TypeFor[T](), "")
	return yaml.Marshal(root)
}

// redact hides in a value what does not belong to the key that it stands at.
func redact(n *yaml.Node, t reflect.Type, tag reflect.StructTag) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	switch {
	case n.Anchor != "" || strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") || tag.Get("show") == "no":
		hide(n)
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			redactPair(n.Content[i], n.Content[i+1], t)
		}
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			redact(item, t.Elem(), tag)
		}
	case t.Kind() == reflect.Map && n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			redactParameter(n.Content[i], n.Content[i+1])
		}
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
	case n.Kind == yaml.ScalarNode && setText(reflect.New(scalarOr(t)).Elem(), n.Value, tag, "") == nil:
		if strings.ContainsAny(n.Value, "@?#") {
			n.Value = bmc.RedactAddress(n.Value)
		}
	default:
		hide(n)
	}
}

// scalarOr is t, or for what is no scalar a type that takes no text.
func scalarOr(t reflect.Type) reflect.Type {
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map:
		return reflect.TypeFor[bool]()
	}
	return t
}

// redactPair shows a key that the file may have, with its value. A word that is no key may be half
// of a password.
func redactPair(name, value *yaml.Node, t reflect.Type) {
	field, ok := fieldOf(t, name.Value)
	if !ok || name.Kind != yaml.ScalarNode {
		hide(name)
		hide(value)
		return
	}
	name.HeadComment, name.LineComment, name.FootComment, name.Anchor, name.Tag = "", "", "", "", ""
	redact(value, field.Type, field.Tag)
}

// shownParameters are those of fence agents whose value says which outlet, and how it is asked.
var shownParameters = []string{"plug", "port", "switch", "method", "ssl", "ssl_insecure", "ssl_secure", "lanplus", "privlvl", "cipher", "snmp_version"}

// redactParameter shows the name of a parameter, and of few the value.
func redactParameter(name, value *yaml.Node) {
	if name.Kind != yaml.ScalarNode || !parameterName().MatchString(name.Value) {
		hide(name)
	}
	name.HeadComment, name.LineComment, name.FootComment = "", "", ""
	if value.Kind != yaml.ScalarNode || value.Anchor != "" || !slices.Contains(shownParameters, strings.ReplaceAll(name.Value, "-", "_")) {
		hide(value)
	}
	value.HeadComment, value.LineComment, value.FootComment = "", "", ""
}

// hide puts the placeholder of a secret in the place of a node.
func hide(n *yaml.Node) {
	*n = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: bmc.Secret{}.String()}
}

// policyKinds are those that policies.d has.
var policyKinds = []string{"MachineHealthCheck", "NodeHealthCheck", "FencePolicy", "DisruptionBudget"}

// redactPolicies shows the documents that are of a kind of policies.d.
func redactPolicies(file string, data []byte) ([]byte, error) {
	var out bytes.Buffer
	docs := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := docs.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, yamlError(file, data, err)
		}
		if root := doc.Content[0]; slices.Contains(policyKinds, kindOf(root)) {
			withoutComments(&doc)
		} else if root.ShortTag() != "!!null" {
			hide(root)
		}
		text, err := yaml.Marshal(&doc)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
}

func kindOf(n *yaml.Node) string {
	var object struct {
		Kind string `yaml:"kind"`
	}
	if n.Decode(&object) != nil {
		return ""
	}
	return object.Kind
}

// withoutComments removes the comments of a node, and the annotations, which hold what other programs
// write.
func withoutComments(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	for i, below := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "annotations" {
			hideValues(below)
		}
		withoutComments(below)
	}
}

// hideValues hides what the annotations say, but for those of fenced.
func hideValues(annotations *yaml.Node) {
	for i := 1; i < len(annotations.Content); i += 2 {
		if !strings.HasPrefix(annotations.Content[i-1].Value, "fenced.io/") {
			hide(annotations.Content[i])
		}
	}
}
