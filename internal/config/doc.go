// Package config turns the files an administrator writes into typed values,
// once, at start and at reload.
//
// The strict reader walks the YAML against a Go struct: an unknown key, a bad
// value, a duplicate is an error that names file, line and key, and all of
// them are reported together. Only then are the layers of fenced.yaml laid
// over each other: defaults, fenced.yaml, conf.d in name order, environment,
// the command line. Hosts and policies are not layered: their files add up.
//
// A struct's tags are its schema. "yaml" is the key; "is" is a name of the
// table in verify.go, or the words that are allowed with | between them; "empty"
// forbids an empty text.
package config
