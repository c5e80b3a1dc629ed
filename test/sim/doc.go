// Package sim plays whole stories of fenced in virtual time: the real engine, one
// or several of them, against a world that is made of plain values and goes wrong
// in every way that a seed chooses.
//
// The world is an API server whose watches are late and whose answers get lost,
// hosts whose kernels hang and reboot, kubelets, BMCs that lie, a store that fails
// at each save, people who pause, fence and change their minds, entries and selectors
// that are wrong for a while, Nodes that tell another machine's UUID or an absurd time,
// and a hand that kills a fenced at any call. After every virtual second, and at every
// write, the audits compare what fenced did with what the world knows to be true; they
// cite the invariants of docs/safety.md by number.
//
// What a fenced could not know is not held against it: the audits of I9, I10, I17 and
// I18 go by what its own files and its own watch had told it (told.go). Outcome.Cases
// counts how often these rules had something to forbid.
//
// A story has two acts. In the storm faults come and go. Then all is mended, people
// clear away what waits for them, and at the end every host must be On and every
// label back, or an open record must say why not.
//
// The seed decides what goes wrong and how often. Each entity of the world draws from
// a source of its own, so a seed tells almost the same story again; the order in
// which goroutines of one moment run is the scheduler's, and is not replayed.
package sim
