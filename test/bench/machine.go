package main

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/test/rig"
)

// newMachine is a worker's Machine that a MachineSet would replace, with a
// providerSpec of the usual size.
func newMachine(name, poolName string, owner metav1.OwnerReference) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
		"spec": map[string]any{
			"metadata":     map[string]any{"labels": map[string]any{"node-role.kubernetes.io/worker": ""}},
			"providerSpec": map[string]any{"value": providerSpec()},
		},
	}}
	m.SetName(name)
	m.SetNamespace(rig.Namespace)
	m.SetOwnerReferences([]metav1.OwnerReference{owner})
	m.SetLabels(map[string]string{
		poolLabel: poolName,
		"machine.openshift.io/cluster-api-machine-role": "worker",
		"machine.openshift.io/cluster-api-machine-type": "worker",
		"machine.openshift.io/cluster-api-machineset":   owner.Name,
	})
	return m
}

func providerSpec() map[string]any {
	var disks []any
	for i := range 8 {
		disks = append(disks, map[string]any{
			"deviceName": fmt.Sprintf("/dev/disk/by-path/pci-0000:00:1f.2-ata-%d", i), "sizeGigabytes": int64(960), "wwn": fmt.Sprintf("0x%016x", i),
		})
	}
	return map[string]any{
		"apiVersion": "baremetal.cluster.k8s.io/v1alpha1", "kind": "BareMetalMachineProviderSpec", "disks": disks,
		"image":    map[string]any{"url": "http://images.example.com/rhcos.qcow2", "checksum": "http://images.example.com/rhcos.qcow2.md5sum"},
		"userData": map[string]any{"name": "worker-user-data-managed", "namespace": rig.Namespace},
	}
}

func machineStatus(node string) map[string]any {
	now := time.Now().UTC().Format(time.RFC3339)
	return map[string]any{
		"phase": "Running", "lastUpdated": now,
		"nodeRef":   map[string]any{"kind": "Node", "name": node},
		"addresses": []any{map[string]any{"type": "Hostname", "address": node}},
		"conditions": []any{map[string]any{
			"type": "InstanceExists", "status": "True", "lastTransitionTime": now,
		}},
	}
}
