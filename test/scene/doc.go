// Package scene sets up a complete fencing environment: a real control plane,
// workers with simulated hosts behind real BMC protocols, and the built fenced
// and fencectl as processes. The end-to-end tests and the demo use it.
//
//	programs.go  builds fenced and fencectl, with or without failpoints
//	scene.go     New: control planes, workers, objects, fenced.yaml
//	worker.go    one worker: BMC, kubelet, Node, way to its power
//	machine.go   Machines of each kind, what owns them, and the checks on them
//	clusterapi.go the Cluster API with its real manager
//	etcd.go      the etcd member of a control-plane worker, as a static Pod
//	metal.go     the BMCs, and when each was first asked
//	standin.go   stand-ins for controllers that no test can build: metal3.go, metal3remediation.go,
//	             actuator.go, healthchecks.go, nodehealthcheck.go, machinedeletion.go
//	config.go    fenced.yaml and hosts.d with times that suit a test
//	daemon.go    fenced as a process: start, TERM, KILL, log
//	fencectl.go  fencectl as a process: output and exit status
//
// Nothing here depends on package testing, so that the demo can use it too.
package scene
