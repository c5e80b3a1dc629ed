package client

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenced/fenced/internal/remediate"
)

func TestTolerationOfTheTaint(t *testing.T) {
	for name, row := range map[string]struct {
		toleration corev1.Toleration
		want       bool
	}{
		"everything":    {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"the key":       {corev1.Toleration{Key: OutOfService.Key, Operator: corev1.TolerationOpExists}, true},
		"the value":     {corev1.Toleration{Key: OutOfService.Key, Value: OutOfService.Value, Effect: OutOfService.Effect}, true},
		"another value": {corev1.Toleration{Key: OutOfService.Key, Value: "x"}, false},
		"other effect":  {corev1.Toleration{Key: OutOfService.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, false},
		"another taint": {corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{row.toleration}}}
			assert.Equal(t, row.want, toleratesOutOfService(p))
			assert.Equal(t, !row.want, IsReleasable(p, remediate.IsolateTaint))
			assert.True(t, IsReleasable(p, remediate.IsolateDelete))
		})
	}
}
