package rig

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
