// Package audit is the evidence of what fenced decided and did: an append-only
// file of JSON lines, each of which is bound to the line before it.
//
//	{"prev":"HASH","hash":"HASH","entry":{"seq":7,"at":"...","type":"Action",...}}
//
// The hash of a line is the SHA-256 of the previous hash and of the exact bytes of
// its entry; nothing is decoded and encoded again for the check. So reading the
// file finds a changed, removed, inserted or moved line. A file that was cut at the
// end of a line is valid by itself; comparing it with a head (SEQ:HASH) that was
// exported earlier finds that. Somebody who may write the file can build another
// chain; only heads that were stored elsewhere prove that.
//
// When a file is large, the chain continues in the next file. The first entry of
// each file, and of each start of the daemon, is Opened. An entry that Append has
// acknowledged survives a crash. A start removes an unfinished line after it, and
// an entry Repaired records that.
package audit
