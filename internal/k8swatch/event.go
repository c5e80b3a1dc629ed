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

// Limits of an Event: the API server accepts no longer message, and no longer
// name including its random suffix.
const (
	maxEventMessage = 1024
	maxEventName    = 200
)

// reporter is the component that reports the Events.
const reporter = "fenced"

// Record writes one Event about a check. It writes none about a check from a
// file, because there is no object to attach it to.
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
		Type: corev1.EventTypeNormal, Reason: reason, Message: limitMessage(message),
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

// limitMessage cuts a text to the size of an Event, between characters, and makes
// it printable: it may quote texts of others, and people read it on a terminal.
func limitMessage(text string) string { return bmc.Printable(text, maxEventMessage) }
