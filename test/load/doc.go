// Load remediates many hosts at once through a real API server and simulated BMCs,
// while the daemon is killed with -9 at random every few seconds, and checks from
// outside that nothing unsafe was done and that nothing was lost.
//
//	main.go     the command: go run ./test/load
//	load.go     one run: stage, hang, wait until all are back
//	killer.go   the daemon, killed and started again; how fast it resumes
//	verdict.go  what the API server's audit log, the BMCs, the Nodes and the state say
package main
