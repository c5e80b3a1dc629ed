package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Deletion is a deletion that the API server did, according to its audit log.
type Deletion struct {
	User, Name string
	// Received and Done are the times of the request and of the answer.
	Received, Done time.Time
	// UID and ResourceVersion are the preconditions of the request; empty without one.
	UID, ResourceVersion string
	// Forced means that a pod was deleted with a grace period of 0, so that no kubelet needs to confirm it.
	Forced bool
	// CutOff means that the client closed the connection before the answer.
	CutOff bool
}

// auditEvent has the fields of an audit.k8s.io/v1 Event that this package reads.
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject  *metav1.DeleteOptions `json:"requestObject"`
	Received       time.Time             `json:"requestReceivedTimestamp"`
	StageTimestamp time.Time             `json:"stageTimestamp"`
}

// Request is a request that the API server has answered, according to its audit log.
type Request struct {
	Verb, Resource, Name string
	Received, Done       time.Time
}

// Requests returns the requests of a user in the order of their answers: writes, and with Options.AuditReads reads.
func (c *ControlPlane) Requests(user string) (found []Request, err error) {
	if c.standIn != nil {
		return nil, errOnlyDeletions
	}
	err = c.eachEvent([]byte(`"username":"`+user+`"`), func(e auditEvent) {
		if e.User.Username != user {
			return
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		found = append(found, Request{Verb: e.Verb, Resource: resource, Name: e.ObjectRef.Name, Received: e.Received, Done: e.StageTimestamp})
	})
	return found, err
}

// NodeDeletions returns the deletions of Nodes with a name, in order.
func (c *ControlPlane) NodeDeletions(name string) ([]Deletion, error) {
	return c.nodeDeletions(func(e auditEvent) string { return name })
}

// AllNodeDeletions returns the deletions of all Nodes, in order.
func (c *ControlPlane) AllNodeDeletions() ([]Deletion, error) {
	return c.nodeDeletions(func(e auditEvent) string { return e.ObjectRef.Name })
}

// Deletions returns the successful deletions of one object, in order. resource is the plural name of its
// kind. The deletion of a whole collection counts for every name. A refused deletion
// (a failed precondition) does not count.
func (c *ControlPlane) Deletions(resource, name string) ([]Deletion, error) {
	return c.deletions(func(e auditEvent) bool { return e.deletes(resource, name) })
}

// AllDeletions returns the successful deletions of all objects of a resource, in order.
func (c *ControlPlane) AllDeletions(resource string) ([]Deletion, error) {
	return c.deletions(func(e auditEvent) bool { return e.deletes(resource, e.ObjectRef.Name) })
}

func (c *ControlPlane) deletions(wanted func(auditEvent) bool) (found []Deletion, err error) {
	err = c.eachEvent([]byte(`"verb":"delete`), func(e auditEvent) {
		if wanted(e) {
			found = append(found, e.deletion())
		}
	})
	return found, err
}

// eachEvent calls do for every line of the audit log that contains a text.
func (c *ControlPlane) eachEvent(containing []byte, do func(auditEvent)) error {
	log, err := c.lentLog()
	if err != nil {
		return err
	}
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the line is still being written
		}
		if !bytes.Contains(line, containing) {
			continue
		}
		e := auditEvent{}
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("decode a line of the audit log: %w", err)
		}
		do(e)
	}
	return nil
}

// errOnlyDeletions: that a stand-in shows no write would mean nothing.
var errOnlyDeletions = errors.New("the stand-in for kube-apiserver logs deletions alone")

// AuditLog is what the API server has logged since the control plane was started, or lent by a Pool. Its
// last line may still be being written.
func (c *ControlPlane) AuditLog() ([]byte, error) {
	if c.standIn != nil {
		return nil, errOnlyDeletions
	}
	return c.lentLog()
}

func (c *ControlPlane) lentLog() ([]byte, error) {
	log, err := c.auditLog()
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	if c.loan != nil {
		log = log[c.loan.audited:]
	}
	return log, nil
}

// auditLog reads the log from its beginning. Whenever the log has 100 MB, the API server renames the
// file, with the time in the name.
func (c *ControlPlane) auditLog() ([]byte, error) {
	aside, err := filepath.Glob(c.file("audit-*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(aside)
	var log []byte
	for _, name := range append(aside, c.file("audit.log")) {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		log = append(log, text...)
	}
	return log, nil
}

func (e auditEvent) deletes(resource, name string) bool {
	return e.ResponseStatus.Code == http.StatusOK && e.about(resource, name)
}

func (e auditEvent) about(resource, name string) bool {
	o := e.ObjectRef
	return o.Resource == resource && o.Subresource == "" && (o.Name == name || e.Verb == "deletecollection")
}

func (e auditEvent) deletion() Deletion {
	d := Deletion{User: e.User.Username, Name: e.ObjectRef.Name, Received: e.Received, Done: e.StageTimestamp}
	if e.RequestObject == nil {
		return d
	}
	d.Forced = e.RequestObject.GracePeriodSeconds != nil && *e.RequestObject.GracePeriodSeconds == 0
	if e.RequestObject.Preconditions == nil {
		return d
	}
	if uid := e.RequestObject.Preconditions.UID; uid != nil {
		d.UID = string(*uid)
	}
	if rv := e.RequestObject.Preconditions.ResourceVersion; rv != nil {
		d.ResourceVersion = *rv
	}
	return d
}

// nodeDeletions returns the deletions of Nodes with the names that nameOf returns. The API server may
// carry out a request whose client has closed the connection, and still log it as failed. For each UID
// the last such request counts if no other was answered, and the Node with that UID is gone.
func (c *ControlPlane) nodeDeletions(nameOf func(auditEvent) string) ([]Deletion, error) {
	done, err := c.deletions(func(e auditEvent) bool { return e.deletes("nodes", nameOf(e)) })
	if err != nil {
		return nil, err
	}
	cut, err := c.deletions(func(e auditEvent) bool { return e.cutOff() && e.about("nodes", nameOf(e)) })
	if err != nil || len(cut) == 0 {
		return done, err
	}
	over, err := c.nodeUIDs()
	if err != nil {
		return nil, err
	}
	for _, d := range done {
		over[d.UID] = true
	}
	for _, d := range slices.Backward(cut) {
		if d.UID != "" && !over[d.UID] {
			over[d.UID], d.CutOff = true, true
			done = append(done, d)
		}
	}
	slices.SortFunc(done, func(a, b Deletion) int { return a.Received.Compare(b.Received) })
	return done, nil
}

// nodeUIDs returns the UIDs of the Nodes that exist.
func (c *ControlPlane) nodeUIDs() (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	list, err := c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the Nodes: %w", err)
	}
	uids := map[string]bool{}
	for i := range list.Items {
		uids[string(list.Items[i].UID)] = true
	}
	return uids, nil
}

// cutOff reports whether a request was neither carried out nor refused, according to the log.
func (e auditEvent) cutOff() bool {
	code := e.ResponseStatus.Code
	return code == 0 || code >= http.StatusInternalServerError
}
