// Package audit is the evidence of what fenced decided and did: a file of JSON
// lines that is only appended to, each line bound to the one before it.
//
//	{"prev":"HASH","hash":"HASH","entry":{"seq":7,"at":"...","type":"Action",...}}
//
// A line's hash is the SHA-256 of the hash before it and of the exact bytes of its
// entry; nothing is ever decoded and encoded again to check it. So a changed,
// removed, inserted or moved line is found by reading the file. A file that was cut
// at the end of a line is whole in itself: that is found by comparing with a head
// (SEQ:HASH) that was exported before. Somebody who may write the file can make
// another chain of it; only the heads that were carried elsewhere are evidence
// against him.
//
// A large file is put aside and the chain goes on in the next. The first entry of
// each file, and of each start of the daemon, is Opened. An entry that Append has
// acknowledged survives a crash; an unfinished line after one is cut off, which an
// entry Repaired tells.
package audit
