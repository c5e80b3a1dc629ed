// Package login tells who logged in to the session that a process belongs to: the kernel's login uid, which sudo and su leave as it
// is. A process is held by a pidfd, so that what is read is its own, whoever has its pid later.
//
// In the sandbox of its unit the daemon sees no processes of others. There it asks fenced-login, a program of the package that sees
// them and can do nothing else (Ask, Serve). Whoever cannot be asked, or gives no answer in time, leaves the login unknown.
package login
