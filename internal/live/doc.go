// Package live holds what a reload adds and removes while the daemon runs: maps that are read
// without a lock, and tasks that begin and end one by one.
package live
