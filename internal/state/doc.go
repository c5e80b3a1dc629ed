// Package state defines how fenced keeps what must survive a restart: runs, backups of
// Nodes, orders for clusters, holds, freezes, and pinned identities.
//
// The package has two layers. A Store keeps opaque records under a kind and a key, with
// compare-and-set on a version. Above it, SaveRun and similar functions convert typed
// values to records and back, in a versioned JSON envelope. Owners decides which of the
// instances that share a store acts on which cluster.
//
// The engines are in the packages boltstore and etcdstore. Package statetest is the
// conformance suite that both pass.
//
// Two rules keep a record from being lost:
//
//   - A caller saves before it acts, and does not act if the save fails. So Put returns
//     nil only after the record is durable. // I19
//   - A record of a version that this program does not know is refused, and never
//     overwritten. A downgrade must not forget a host that a newer fenced powered
//     off. // I20
package state
