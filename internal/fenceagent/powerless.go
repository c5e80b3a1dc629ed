package fenceagent

import "path/filepath"

// nonPowerAgents are agents whose metadata look like the others' and whose off is no
// power state: a note, or the silence of somebody. The host keeps running. // I1
var nonPowerAgents = map[string]string{
	"fence_ack_manual": "it only asks a human",
	"fence_compute":    "it tells OpenStack that a host is down and switches nothing",
	"fence_crosslink":  "it takes a host that does not answer a ping for off",
	"fence_dummy":      "it is for tests and switches a file",
	"fence_evacuate":   "it tells OpenStack to move machines away and switches nothing",
	"fence_legacy":     "it runs plugins of another kind, and some of them switch nothing",
	"fence_pcmk":       "it asks Pacemaker to fence and knows no power state",
	"fence_sbd":        "it leaves a message on a disk and reads back the message, not the host's power",
	"fence_skalar":     "it reports off while the hypervisor of the machine does not answer",
	"fence_watchdog":   "it only waits for the host's watchdog",
}

// checkSwitchesPower rejects the agents known to switch no power, by any of their
// names.
func checkSwitchesPower(names ...string) error {
	for _, n := range names {
		if why, ok := nonPowerAgents[filepath.Base(n)]; ok {
			return unsupported("%s cannot be used as a power level: %s", filepath.Base(n), why)
		}
	}
	return nil
}
