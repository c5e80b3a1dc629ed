// Package failpoint lets tests kill the daemon with SIGKILL before and after everything
// that leaves the engine: each save, each command to a device, each write to a cluster and
// each durable record. It does so only when it is built with the tag failpoint and
// FENCED_FAILPOINTS names a directory; the shipped binary has none of it.
package failpoint
