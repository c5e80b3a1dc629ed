// Package fenceagent implements bmc.Power with an installed ClusterLabs fence
// agent: for an outlet of a PDU, a virtual machine, a blade of a chassis. Any
// agent that powers off and reports the state can be used; its own metadata says
// which parameters it takes. It is of lower assurance: fenced trusts the agent,
// and the device does not report which host it feeds.
//
// An agent is run by absolute path from the system's directories, only if it
// belongs to root and nobody else can write it. It runs in a process group of its
// own, which is killed as a whole when the context ends. It gets its parameters
// on stdin and a minimal environment: no secret is in argv or environment. An
// agent may still expose them: fence_ipmilan passes the password in ipmitool's
// argv.
//
// Exit status 2 of a status action is not enough for Off, because shells,
// interpreters and option parsers also end with 2 after an error. The agent must
// also have printed "Status: OFF". If it switches one of several outlets, its own
// list must contain that outlet: many agents treat every answer except the one
// for on as off, even the one that the outlet does not exist. // I1
//
// An agent's off action polls the device until it reads off, for power_timeout
// (20 s by default). The engine allows 40 s for it, and 20 s for a status. An
// agent that is killed may have switched all the same; the next reading decides.
//
//	client.go      Read and Send, each a run of the agent
//	off.go         what the Off of an agent is worth
//	metadata.go    what an agent reports about itself, read once
//	parameters.go  what an agent reads on stdin
//	run.go         where an agent may be installed, and how it runs
package fenceagent
