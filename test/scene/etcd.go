package scene

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/test/rig"
)

// etcdEvery is the time between two looks at an etcd Pod.
const etcdEvery = 300 * time.Millisecond

// runEtcd keeps an etcd member on a worker until the scene ends, and returns
// when it is Ready. To the API it is what kubeadm has: the mirror of a static
// Pod, which the kubelet makes and calls Ready as long as it lives itself. That
// it lives no more is written by the controller manager.
func (s *Scene) runEtcd(ctx, life context.Context, w *Worker) error {
	if err := rig.WhileBusy(ctx, func() error { return s.keepEtcd(ctx, w) }); err != nil {
		return err
	}
	s.wg.Go(func() {
		for life.Err() == nil {
			_ = s.keepEtcd(life, w) // errors are for the next round, as with a kubelet
			select {
			case <-life.Done():
			case <-time.After(etcdEvery):
			}
		}
	})
	return nil
}

// keepEtcd does what the kubelet does for its static Pod. One that does not
// heartbeat does nothing.
func (s *Scene) keepEtcd(ctx context.Context, w *Worker) error {
	node, err := s.Cluster.Client().CoreV1().Nodes().Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get Node %s: %w", w.Name, err)
	}
	if !IsReady(node) || node.Status.NodeInfo.BootID != w.Kubelet.BootID() {
		return nil
	}
	pods := s.Cluster.Client().CoreV1().Pods(metav1.NamespaceSystem)
	pod, err := pods.Get(ctx, "etcd-"+w.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		pod, err = pods.Create(ctx, etcdPod(w.Name), metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make the etcd Pod of %s: %w", w.Name, err)
	}
	if podReady(pod) {
		return nil
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say that the etcd Pod of %s is Ready: %w", w.Name, err)
	}
	return nil
}

func etcdPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "etcd-" + node, Labels: map[string]string{"component": "etcd", "tier": "control-plane"},
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: node},
		},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true,
			Containers:                   []corev1.Container{{Name: "etcd", Image: "example.com/etcd"}},
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			AutomountServiceAccountToken: new(bool),
		},
	}
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
