// Package sim plays whole stories of fenced in virtual time: one or several
// instances of the real engine, in a world of plain values with faults that a
// seed chooses.
//
// The world has an API server with late watches and lost answers, hosts whose
// kernels hang and reboot, kubelets, BMCs with false answers, a store that fails
// at each save, or is put back as it was some minutes ago, machines that take the
// name of another one's Node, a kubeconfig that leads to a copy of the cluster,
// people who pause, fence and change their minds, entries and selectors that are wrong for a while, Nodes with another machine's UUID or an
// absurd time, a controller that asks for hosts and changes its mind (mode
// respond), other remediators that fenced asks (they are slow, fail, say nothing,
// are not installed, delete the Node; people meddle with their requests), and
// kill -9 of a fenced at any call. After every virtual second,
// and at every write, the audits compare what fenced did with the true state of
// the world. They cite the invariants of docs/safety.md by number.
//
// The audits do not expect what a fenced could not know: those of I9, I10, I17
// and I18 use what its own files and its own watch had told it (told.go).
// Outcome.Cases counts how often these rules had something to forbid.
//
// A story has two parts. In the storm faults come and go. Then all faults are
// repaired and people resolve what waits for them. At the end every host must be
// On and every label restored, or an open record must say why not.
//
// The seed decides what goes wrong and how often. Each entity of the world has
// its own random source, so a seed repeats almost the same story. The scheduler
// decides the order of simultaneous goroutines, which is not repeated.
package sim
