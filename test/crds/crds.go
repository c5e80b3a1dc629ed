// Package crds holds the CustomResourceDefinitions of the clusters that fenced works for, as the real clusters
// have them: machine.openshift.io from OpenShift's API module, metal3.io from the operator's. generate.sh makes
// them anew.
package crds

import "embed"

// Files are the manifests, one CustomResourceDefinition each.
//
//go:embed *.yaml
var Files embed.FS
