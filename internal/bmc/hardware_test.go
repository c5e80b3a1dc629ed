package bmc_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

// Each factor that both sides know must agree; a placeholder is not known. // I8
func TestSameHardware(t *testing.T) {
	const nic, lom, foreign = "b8:ca:3a:00:00:01", "b8:ca:3a:00:00:02", "b8:ca:3a:00:00:99"
	for name, c := range map[string]struct {
		inventory, reported bmc.Hardware
		same, differs       bool
	}{
		"the serial number":              {bmc.Hardware{Serial: "ABC1234"}, bmc.Hardware{Serial: " abc 1234"}, true, false},
		"another serial number":          {bmc.Hardware{Serial: "ABC1234"}, bmc.Hardware{Serial: "ABC1235"}, false, true},
		"one side has none":              {bmc.Hardware{Serial: "ABC1234"}, bmc.Hardware{}, false, false},
		"To be filled by O.E.M.":         {bmc.Hardware{Serial: "To be filled by O.E.M."}, bmc.Hardware{Serial: "To be filled by O.E.M."}, false, false},
		"0123456789":                     {bmc.Hardware{Serial: "0123456789"}, bmc.Hardware{Serial: "0123456789"}, false, false},
		"None":                           {bmc.Hardware{Serial: "None"}, bmc.Hardware{Serial: "None"}, false, false},
		"all that it reports":            {bmc.Hardware{MACs: []string{nic, lom}}, bmc.Hardware{MACs: []string{"B8-CA-3A-00-00-01"}}, true, false},
		"a card of another machine":      {bmc.Hardware{MACs: []string{nic, lom}}, bmc.Hardware{MACs: []string{nic, foreign}}, false, false},
		"none in common":                 {bmc.Hardware{MACs: []string{nic, lom}}, bmc.Hardware{MACs: []string{foreign}}, false, true},
		"the USB network of the BMC":     {bmc.Hardware{MACs: []string{"b0:3a:f2:b6:05:9f"}}, bmc.Hardware{MACs: []string{"b0:3a:f2:b6:05:9f"}}, false, false},
		"a local address":                {bmc.Hardware{MACs: []string{"02:00:00:00:00:01"}}, bmc.Hardware{MACs: []string{"02:00:00:00:00:01"}}, false, false},
		"a serial number of the chassis": {bmc.Hardware{Serial: "ABC1234", MACs: []string{nic}}, bmc.Hardware{Serial: "ABC1234", MACs: []string{foreign}}, false, true},
		"both":                           {bmc.Hardware{Serial: "ABC1234", MACs: []string{nic}}, bmc.Hardware{Serial: "ABC1234", MACs: []string{nic, foreign}}, true, false},
		"the MACs, but another serial":   {bmc.Hardware{Serial: "ABC1234", MACs: []string{nic}}, bmc.Hardware{Serial: "ABC1235", MACs: []string{nic}}, false, true},
		"nothing":                        {bmc.Hardware{}, bmc.Hardware{}, false, false},
	} {
		same, differs, why := bmc.SameHardware(c.inventory, c.reported)
		assert.Equal(t, c.same, same, name)
		assert.Equal(t, c.differs, differs, name)
		assert.NotEmpty(t, why, name)
	}
}

// The name of an entry tells Nodes, Machines and BareMetalHosts apart.
func TestEntryName(t *testing.T) {
	for of, name := range map[string]string{"n-1": "c/n-1", "machine": "c/machine", "ns/m-1": "c/machine/ns/m-1", "machine/machine": "c/machine/machine/machine"} {
		assert.Equal(t, name, bmc.EntryName("c", of))
		cluster, back := bmc.EntryOf(name)
		assert.Equal(t, "c", cluster)
		assert.Equal(t, of, back)
	}
	for name, is := range map[string]bool{"c/machine/ns/m-1": true, "c/ns/m-1": false, "c/machine/m-1": false, "c/n-1": false, "c/machine": false} {
		assert.Equal(t, is, bmc.IsMachineEntry(name), name)
	}
}
