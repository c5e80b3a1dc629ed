// Package failpoint lets tests kill the daemon with SIGKILL before and after
// every effect of the engine: each save, each command to a device, each write to
// a cluster and each durable record; or hang a deciding loop alone. It does so only if it is built with the tag
// failpoint and FENCED_FAILPOINTS names a directory; the shipped binary contains
// none of it.
package failpoint
