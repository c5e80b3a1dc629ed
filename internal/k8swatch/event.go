package k8swatch

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
)

// Bounds of an Event: the API server takes no longer message, and no longer
// name than this with its random end.
const (
	maxEventMessage = 1024
	maxEventName    = 200
)

// reporter is who Events come from.
const reporter = "fenced"

// Record writes one Event about a check. There is none about a check from a
// file: nobody would find it.
func (c *Cluster) Record(ctx context.Context, r policy.CheckReport, warning bool, reason, message string) error {
	if r.Source != fromCluster {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    cmp.Or(r.Namespace, metav1.NamespaceDefault),
			GenerateName: r.Name[:min(len(r.Name), maxEventName)] + ".",
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: types.UID(r.UID),
		},
		Type: corev1.EventTypeNormal, Reason: reason, Message: bounded(message),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: reporter}, ReportingController: reporter,
	}
	if warning {
		e.Type = corev1.EventTypeWarning
	}
	if _, err := c.sideOf(r.APIVersion).api().typed.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("record an event on %s %s/%s: %w", r.Kind, r.Namespace, r.Name, err)
	}
	return nil
}

// bounded cuts a text to what an Event can hold, between characters; it may quote what
// others wrote, and people see it on a terminal.
func bounded(text string) string { return bmc.Printable(text, maxEventMessage) }
