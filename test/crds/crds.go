// Package crds holds the CustomResourceDefinitions of the clusters that fenced works for, one directory for what a
// cluster has or has not: OpenShift's Machines, the bare-metal operator's hosts, Cluster API at one version or the
// other. generate.sh makes them anew from the modules that define them, except those of medik8s, its remediators,
// metal3-remediation and the stand-in for providers of the Cluster API, which are written by hand.
package crds

import "embed"

// Files are the manifests, one CustomResourceDefinition each, in the directory of their set.
//
//go:embed */*.yaml
var Files embed.FS
