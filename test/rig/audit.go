package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Deletion is a deletion that the API server did, by its own audit log.
type Deletion struct {
	User      string
	UserAgent string
	Namespace string
	Name      string
	// Received and Done are when the request came in and was answered.
	Received, Done time.Time
	// UID and ResourceVersion are the preconditions of the request, empty if
	// it had none.
	UID, ResourceVersion string
	// CutOff is a request whose client went away before it was answered.
	CutOff bool
}

// auditEvent is what of an audit.k8s.io/v1 Event is read here.
type auditEvent struct {
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject  *metav1.DeleteOptions `json:"requestObject"`
	Received       time.Time             `json:"requestReceivedTimestamp"`
	StageTimestamp time.Time             `json:"stageTimestamp"`
}

// NodeDeletions are the deletions of a Node of that name, in order.
func (c *ControlPlane) NodeDeletions(name string) ([]Deletion, error) {
	return c.nodeDeletions(func(e auditEvent) string { return name })
}

// AllNodeDeletions are those of every Node, by one look at the log.
func (c *ControlPlane) AllNodeDeletions() ([]Deletion, error) {
	return c.nodeDeletions(func(e auditEvent) string { return e.ObjectRef.Name })
}

// Deletions are the successful deletions of one object, by the plural name of
// its kind and its own name, in order. A deletion of a whole collection counts
// for every name. A refused one (a failed precondition) is not among them.
func (c *ControlPlane) Deletions(resource, name string) ([]Deletion, error) {
	return c.deletions(func(e auditEvent) bool { return e.deletes(resource, name) })
}

func (c *ControlPlane) deletions(wanted func(auditEvent) bool) ([]Deletion, error) {
	log, err := c.auditLog()
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	var found []Deletion
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		if !bytes.Contains(line, []byte(`"verb":"delete`)) {
			continue
		}
		e := auditEvent{}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("decode a line of the audit log: %w", err)
		}
		if wanted(e) {
			found = append(found, e.deletion())
		}
	}
	return found, nil
}

// auditLog is the log from its beginning: the API server puts it aside whenever it has
// 100 MB, under a name with the time.
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
	d := Deletion{
		User: e.User.Username, UserAgent: e.UserAgent, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		Received: e.Received, Done: e.StageTimestamp,
	}
	if e.RequestObject == nil || e.RequestObject.Preconditions == nil {
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
