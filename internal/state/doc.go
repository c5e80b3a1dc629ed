// Package state keeps what must outlive the daemon: runs, backups of Nodes,
// what people ordered per cluster, and pinned identities.
//
// It has two layers. A Store keeps opaque records under a kind and a key, with
// compare-and-set on a version and durability when Put returns; engines differ
// only there, and statetest holds all of them to one conformance suite. Above
// it, SaveRun and its like turn typed values into records and back through a
// versioned JSON envelope.
//
// Two rules follow from what a lost record costs. A caller saves before it
// acts and does nothing when the save fails, so Put never answers before the
// bytes are on disk. // I19. And a record of a version this program does not
// know is refused and never written over: a downgrade must not forget a host
// that a newer fenced left switched off. // I20
package state
