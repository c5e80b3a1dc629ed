package rig

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
)

// CAPICondition is a condition of a Cluster or of a Machine. The rig writes it into both lists of such
// an object, as the controllers of Cluster API do.
type CAPICondition struct {
	Type string
	// Status is True, False or Unknown; empty removes the condition.
	Status          string
	Since           time.Time // now if zero
	Reason, Message string
}

// lists returns the paths of the two lists of conditions: the old one of Cluster API, with a severity,
// and the standard one of Kubernetes.
func (v capi) lists() (old, standard []string) {
	if v == "v1beta1" {
		return []string{"status", "conditions"}, []string{"status", "v1beta2", "conditions"}
	}
	return []string{"status", "deprecated", "v1beta1", "conditions"}, []string{"status", "conditions"}
}

// setConditions puts conditions into both lists of obj. Each replaces the condition of its type.
func (v capi) setConditions(obj *unstructured.Unstructured, conditions []CAPICondition) error {
	old, standard := v.lists()
	for _, cond := range conditions {
		if err := setInList(obj, old, cond.Type, cond.old()); err != nil {
			return err
		}
		if err := setInList(obj, standard, cond.Type, cond.standard()); err != nil {
			return err
		}
	}
	return nil
}

func setInList(obj *unstructured.Unstructured, path []string, kind string, cond map[string]any) error {
	list, _, err := unstructured.NestedSlice(obj.Object, path...)
	if err != nil {
		return fmt.Errorf("read the conditions of %s: %w", obj.GetName(), err)
	}
	list = slices.DeleteFunc(list, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == kind
	})
	if cond != nil {
		list = append(list, cond)
	}
	if err := unstructured.SetNestedSlice(obj.Object, list, path...); err != nil {
		return fmt.Errorf("set the conditions of %s: %w", obj.GetName(), err)
	}
	return nil
}

func (k CAPICondition) standard() map[string]any {
	if k.Status == "" {
		return nil
	}
	since := k.Since
	if since.IsZero() {
		since = time.Now()
	}
	return map[string]any{
		"type": k.Type, "status": k.Status, "lastTransitionTime": since.UTC().Format(time.RFC3339),
		"reason": orElse(k.Reason, "Rig"), "message": k.Message,
	}
}

// old is the condition in the form of the old list: without an empty message, and with a severity if
// it is False.
func (k CAPICondition) old() map[string]any {
	m := k.standard()
	if m == nil {
		return nil
	}
	if k.Message == "" {
		delete(m, "message")
	}
	if k.Status == "False" {
		m["severity"] = "Warning"
	}
	return m
}

// SetCAPIConditions puts conditions into both lists of an object in Namespace. It leaves the other
// conditions as they are. The plural is "machines" or "clusters".
func (c *ControlPlane) SetCAPIConditions(ctx context.Context, plural, name string, conditions ...CAPICondition) error {
	v, err := c.capi()
	if err != nil {
		return err
	}
	client := c.dynamic.Resource(CAPIResource(string(v), plural)).Namespace(Namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // a fenced under test writes conditions as well
		obj, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := v.setConditions(obj, conditions); err != nil {
			return err
		}
		_, err = client.UpdateStatus(ctx, obj, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("set conditions of %s %s: %w", plural, name, err)
	}
	return nil
}
