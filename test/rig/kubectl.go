package rig

import (
	"context"
	"io"
	"path/filepath"
)

const kubectlPackage = "k8s.io/kubernetes/cmd/kubectl"

// Kubectl returns the directory that holds kubectl, of the version of the control plane. Like
// Binaries, it builds it if this user never did.
func Kubectl(ctx context.Context, progress io.Writer) (string, error) {
	return cached(ctx, "kubectl", kubernetesVersion, linkFlags, progress, func(ctx context.Context, module, dir string, progress io.Writer) error {
		return buildOne(ctx, module, filepath.Join(dir, "kubectl"), kubectlPackage, linkFlags, "kubectl", "a minute on 2 cores", progress)
	})
}
