// Package scene sets up a complete fencing environment: a real control plane,
// workers with simulated hosts behind real BMC protocols, and the built fenced
// and fencectl as processes. The end-to-end tests and the demo use it.
//
//	scene.go         New: control planes, workers, objects, fenced.yaml
//	worker.go        one worker: BMC, kubelet, Node, way to its power
//	metal.go         the BMCs, when each was first asked, and the mains that feed the hosts
//	machine.go       Machines of each kind, what owns them, and the checks on them; the Cluster API with
//	                 its real manager; the etcd member of a control-plane worker, as a static Pod
//	config.go        fenced.yaml and hosts.d with times that suit a test
//	programs.go      builds fenced and fencectl, with or without failpoints, and runs them as processes
//	standin.go       stand-ins for controllers that no test can build: remediators; healthchecks.go: the
//	                 health checks; metal3.go: Metal3's controllers
//
// Nothing here depends on package testing, so that the demo can use it too.
package scene
