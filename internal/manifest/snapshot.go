package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/policy"
)

// ErrUnreadable means that nothing could be read from an input.
var ErrUnreadable = errors.New("nothing could be read")

// Objects collects the objects of any number of inputs.
type Objects struct {
	order []id
	found map[id]*entry
	// unreadable are the documents and items without an identity.
	unreadable []policy.ObjectError
	// unreadableKeys are the objects that those may have been.
	unreadableKeys []policy.ObjectKey
}

// The API groups that are read.
const (
	groupMachine  = "machine.openshift.io"
	groupHost     = "metal3.io"
	groupCluster  = "cluster.x-k8s.io"
	groupFenced   = "fenced.io"
	leaseVersion  = "coordination.k8s.io/v1"
	leaseSpace    = "kube-node-lease"
	etcdSpace     = "openshift-etcd"
	hostVersion   = groupHost + "/v1alpha1"
	requestSuffix = "Remediation"
)

// id identifies an object.
type id struct{ apiVersion, kind, namespace, name string }

func (i id) key() policy.ObjectKey {
	return policy.ObjectID{APIVersion: i.apiVersion, Kind: i.kind, Namespace: i.namespace, Name: i.name}.Key()
}

// anyVersion is the object in any version of its API. If two dumps show it in two
// versions with different contents, it is unknown which is right.
func (i id) anyVersion() id {
	i.apiVersion, _, _ = strings.Cut(i.apiVersion, "/")
	return i
}

// String names the object in messages.
func (i id) String() string {
	name := i.name
	if name == "" {
		name = "(no name)"
	}
	if i.namespace != "" {
		name = i.namespace + "/" + name
	}
	return i.kind + " " + name
}

// entry is one object as it was read.
type entry struct {
	fields   map[string]any
	source   string
	conflict string // source of another object with the same name
}

// Read reads one input up to the maximum size.
func (o *Objects) Read(name string, r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxInput {
		return fmt.Errorf("read %s: it is larger than %d MiB: %w", name, maxInput>>20, ErrUnreadable)
	}
	return o.Add(name, data)
}

// Add decodes one input. It records parts that do not parse. It returns an error,
// and records it, if nothing of the input could be read.
func (o *Objects) Add(name string, data []byte) error {
	docs, errs := documents(data)
	if len(docs) == 0 {
		if len(errs) == 0 {
			errs = append(errs, errors.New("it is empty"))
		}
		err := errors.Join(errs...)
		o.addUnreadable(name, policy.ObjectKey{}, err)
		return fmt.Errorf("decode %s: %w: %w", name, ErrUnreadable, err)
	}
	for _, err := range errs {
		o.addUnreadable(name, policy.ObjectKey{}, err)
	}
	for _, d := range docs {
		source := fmt.Sprintf("%s:%d", name, d.line)
		fields, ok := d.value.(map[string]any)
		if !ok {
			o.addUnreadable(source, policy.ObjectKey{}, fmt.Errorf("%s is not a Kubernetes object", describeValue(d.value)))
			continue
		}
		o.add(fields, source)
	}
	return nil
}

// addUnreadable records an object that could not be read.
func (o *Objects) addUnreadable(object string, key policy.ObjectKey, err error) {
	o.unreadable = append(o.unreadable, policy.ObjectError{Object: object, Message: err.Error()})
	o.unreadableKeys = append(o.unreadableKeys, key)
}

// add stores one object, or each object of a list.
func (o *Objects) add(fields map[string]any, source string) {
	i := idOf(fields)
	if i.kind == "" || i.apiVersion == "" {
		o.addUnreadable(source, policy.ObjectKey{}, errors.New("apiVersion or kind is missing"))
		return
	}
	if items, ok := fields["items"]; ok && strings.HasSuffix(i.kind, "List") {
		o.addList(i, items, source)
		return
	}
	if classify(i) == ignored {
		return
	}
	if i.namespace == "" && isNamespaced(i) {
		fields, i.namespace = inDefault(fields), defaultNamespace
	}
	if i.name == "" {
		o.addNameless(i, fields, source)
		return
	}
	o.store(i, fields, source)
}

// defaultNamespace is where kubectl creates an object without a namespace.
// Objects from a cluster always have one; those in documents or repositories may
// not.
const defaultNamespace = "default"

func isNamespaced(i id) bool {
	switch classify(i) {
	case machine, cluster, host:
		return true
	case check, unsupportedCheck:
		return i.kind == policy.MachineHealthCheckKind
	}
	return false
}

// inDefault is a copy of the object with that namespace.
func inDefault(fields map[string]any) map[string]any {
	meta, ok := fields["metadata"].(map[string]any)
	if !ok || meta["namespace"] != nil && meta["namespace"] != "" {
		return fields
	}
	meta = maps.Clone(meta)
	meta["namespace"] = defaultNamespace
	return read(fields).with("metadata", meta).fields
}

// store records one object. The same object may occur twice, in overlapping
// dumps, with the same content.
func (o *Objects) store(i id, fields map[string]any, source string) {
	same := i.anyVersion()
	before := o.found[same]
	if before == nil {
		if o.found == nil {
			o.found = map[id]*entry{}
		}
		o.order = append(o.order, i)
		o.found[same] = &entry{fields: fields, source: source}
		return
	}
	if !reflect.DeepEqual(before.fields, fields) {
		before.conflict = source
	}
}

// addNameless records an object without a name. A check stays, as Invalid, with
// its source as its name.
func (o *Objects) addNameless(i id, fields map[string]any, source string) {
	if c := classify(i); c == check || c == unsupportedCheck || c == budget {
		i.name = source
		o.store(i, fields, source)
		return
	}
	o.addUnreadable(i.String(), i.key(), fmt.Errorf("%s: metadata.name is missing", source))
}

func (o *Objects) addList(i id, items any, source string) {
	list, ok := items.([]any)
	if !ok && items != nil {
		o.addUnreadable(source, policy.ObjectKey{}, fmt.Errorf("items: %s is not a list", describeValue(items)))
		return
	}
	for n, item := range list {
		at := fmt.Sprintf("%s items[%d]", source, n)
		fields, ok := item.(map[string]any)
		if !ok {
			o.addUnreadable(at, policy.ObjectKey{}, fmt.Errorf("%s is not a Kubernetes object", describeValue(item)))
			continue
		}
		o.add(withType(fields, i), at)
	}
}

// withType returns an item of a typed list (NodeList) with the type that it
// leaves out.
func withType(fields map[string]any, list id) map[string]any {
	kind := strings.TrimSuffix(list.kind, "List")
	if kind == "" || fields["kind"] != nil || fields["apiVersion"] != nil {
		return fields
	}
	return read(fields).with("kind", kind).with("apiVersion", list.apiVersion).fields
}

// idOf reads the identity of an object, as far as it can be read.
func idOf(fields map[string]any) id {
	o := read(fields)
	meta := o.child("metadata")
	return id{o.text("apiVersion"), o.text("kind"), meta.text("namespace"), meta.text("name")}
}

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
	nodeLock
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
	_, isCheck := checkKinds[[2]string{i.apiVersion, i.kind}]
	switch {
	case isCheck:
		return check
	case i.apiVersion == "v1" && i.kind == "Node":
		return node
	case i.apiVersion == leaseVersion && i.kind == "Lease" && i.namespace == leaseSpace:
		return lease
	case i.apiVersion == leaseVersion && i.kind == "Lease" && i.namespace == policy.NodeLockNamespace && strings.HasPrefix(i.name, policy.NodeLockPrefix):
		return nodeLock
	case i.apiVersion == "v1" && i.kind == "Pod" && slices.ContainsFunc(policy.PodSpaces, func(s policy.PodSpace) bool { return s.Namespace == i.namespace }):
		return pod
	case i.apiVersion == hostVersion && i.kind == "BareMetalHost":
		return host
	case i.apiVersion == policy.OpenShiftMachineAPI && i.kind == "Machine":
		return machine
	case i.apiVersion == clusterVersionAPI && i.kind == clusterVersionKind:
		return upgrade
	case i.apiVersion == policy.FencedAPI && i.kind == policy.DisruptionBudgetKind:
		return budget
	case isClusterAPI(i.apiVersion) && i.kind == "Machine":
		return machine
	case isClusterAPI(i.apiVersion) && i.kind == "Cluster":
		return cluster
	case group == groupCluster && (i.kind == "Machine" || i.kind == "Cluster"):
		return wrongVersion
	case group == groupMachine && i.kind == "Machine", group == groupHost && i.kind == "BareMetalHost":
		return wrongVersion
	case isOtherVersion(group, i.kind),
		group == groupFenced && i.kind != policy.FencedRemediationKind && i.kind != policy.FencedRemediationKind+"Template":
		return unsupportedCheck
	case strings.HasSuffix(i.kind, requestSuffix):
		return request
	}
	return ignored
}

// Snapshot converts everything collected to policy's values.
func (o *Objects) Snapshot() policy.Snapshot {
	s := policy.Snapshot{
		Nodes:     map[string]*policy.Node{},
		Leases:    map[string]policy.Lease{},
		NodeLocks: map[string]policy.NodeLock{},
		Errors:    append([]policy.ObjectError{}, o.unreadable...),
		Undecoded: append([]policy.ObjectKey{}, o.unreadableKeys...),
		Rules:     policy.Rules{NodesCountAsMembers: true, TrustNames: true, HostsUnpinned: true},
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
	c := decodeCheck(i, e.fields)
	c.Source = e.source
	if err != nil {
		c.Invalid = err.Error()
	}
	return c
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
		return decodeInto(&s.Machines, Machine, e.fields)
	case node:
		n, err := Node(e.fields)
		if err == nil {
			s.Nodes[n.Name] = &n
		}
		return err
	case cluster:
		return decodeInto(&s.Clusters, Cluster, e.fields)
	case lease:
		name, l, err := Lease(e.fields)
		if err == nil {
			s.Leases[name] = l
		}
		return err
	case nodeLock:
		node, l, err := NodeLock(e.fields)
		if err == nil {
			s.NodeLocks[node] = l
		}
		return err
	}
	return decodeInto(&s.Hosts, BareMetalHost, e.fields)
}

// decodeInto adds an object to a list, if it can be decoded.
func decodeInto[T any](list *[]T, decode func(map[string]any) (T, error), fields map[string]any) error {
	v, err := decode(fields)
	if err == nil {
		*list = append(*list, v)
	}
	return err
}
