// Package configs holds the files of the package that fencectl init derives its own from, so that
// each right and each key has one source.
package configs

import _ "embed"

// Reference is fenced.yaml as the package installs it.
//
//go:embed fenced.yaml
var Reference []byte

// The rights of fenced in a cluster.
var (
	// Evaluate is for acting, Observe for reading only.
	//
	//go:embed rbac.yaml
	Evaluate []byte
	//go:embed kubernetes/observe.yaml
	Observe []byte
	// Medik8s is beside Evaluate where the namespace of medik8s' Leases exists.
	//
	//go:embed rbac-medik8s.yaml
	Medik8s []byte
)
