// Package fenceagent switches a host's power by an installed ClusterLabs fence
// agent: an outlet of a PDU, a virtual machine, a blade of a chassis. Any agent
// that powers off and tells the state can be used; which parameters it takes is
// asked of the agent itself. It is of lower assurance: the agent is believed,
// and it does not tell whose outlet it is.
//
// An agent is run by absolute path from the system's directories, only when it
// belongs to root and nobody else can write it, in a process group of its own
// that is killed whole when the context ends. It gets its parameters on stdin and
// a bare environment: no secret is in argv or environment. What the agent does
// with them is its own: fence_ipmilan gives the password to ipmitool's argv.
//
// Exit 2 of a status is not enough for Off, because shells, interpreters and
// option parsers end with 2 as well when something is wrong. The agent must also
// have said "Status: OFF", and where it switches one of several outlets, its own
// list must name that one: many take any answer but the one for on as off, also that
// there is no such outlet. // I1
//
// An agent's off polls the device itself until it reads off, for power_timeout
// (20 s by default). The engine gives it 40 s, and a status 20 s; an agent that is
// cut short may have switched all the same, and the next reading decides.
package fenceagent
