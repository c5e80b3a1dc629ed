package policy

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

// The law of this file gives an attacker a namespace of the cluster that has the name of one on the management API, where the
// Machines of the cluster are.

const sameName = "b"

var inTheOtherAPI = attacker{
	may: func(apiVersion, namespace string) bool {
		return namespace == sameName && group(apiVersion) == group(OpenShiftMachineAPI)
	},
	made: func(q *Request) bool { return q.Namespace == sameName && !q.OnManagementAPI },
}

// attacksFromTheOtherAPI draw what the attacker may write.
var attacksFromTheOtherAPI = map[string]func(t *rapid.T) Change{
	"Machine": func(t *rapid.T) Change {
		m := drawWorldMachine(t, ledgerEpoch)
		m.APIVersion, m.Namespace = OpenShiftMachineAPI, sameName
		return put(m)
	},
	"undecodable Machine": func(t *rapid.T) Change {
		return Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: sameName, Name: of(t, "name", worldMachines...)}, Err: errors.New("status.nodeRef: is wrong")}
	},
	"check": func(t *rapid.T) Change {
		c := drawWorldCheck(t, ledgerEpoch)
		c.APIVersion, c.Kind, c.SelectsNodes, c.Escalation, c.Namespace, c.Source = OpenShiftMachineAPI, MachineHealthCheckKind, false, nil, sameName, "cluster"
		return put(c)
	},
	"request": func(t *rapid.T) Change {
		q := drawWorldRequest(t, ledgerEpoch)
		q.Namespace = sameName
		return requestChange(q)
	},
	"FencedRemediation": func(t *rapid.T) Change { return requestChange(drawPowerRequest(t, sameName)) },
}

// onTwoAPIs is a world whose Machines, with their checks and BareMetalHosts, are on the management API.
func onTwoAPIs(world []Change) (list []Change) {
	for _, c := range world {
		if c.ID.kind() == "Machine" || c.ID.kind() == MachineHealthCheckKind {
			if c.ID.kind() == MachineHealthCheckKind && group(c.ID.APIVersion) == group(OpenShiftMachineAPI) {
				continue
			}
			c.ID.APIVersion = ClusterAPIV1Beta2
		}
		switch v := c.Value.(type) {
		case *Machine:
			v.APIVersion = ClusterAPIV1Beta2
		case *Check:
			if c.ID.kind() == MachineHealthCheckKind {
				v.APIVersion = ClusterAPIV1Beta2
			}
		case *Node:
			v.OpenShiftMachine = ""
			if strings.HasPrefix(v.ProviderID, openShiftScheme) {
				v.ProviderID = ""
			}
		case *Host:
			v.OnManagementAPI = true
		case *Request:
			v.OnManagementAPI = v.Namespace == sameName
			c.ID.OnManagementAPI = v.OnManagementAPI
		}
		list = append(list, c)
	}
	return list
}

// ofMedik8s: the checks of OpenShift put it out of force.
func ofMedik8s(c Change) bool { return c.ID.Kind == NodeHealthCheckKind }

// attackFromTheOtherAPI checks that nothing changes for those of the management API.
func attackFromTheOtherAPI(kinds ...string) func(*rapid.T) {
	return func(t *rapid.T) {
		rules, world := drawVictims(t)
		rules.ManagementApart, rules.ManagementNamespace = true, of(t, "management namespace", "", sameName)
		world = onTwoAPIs(world)
		var objects []Change
		used := map[string]bool{}
		for range rapid.IntRange(1, 4).Draw(t, "objects") {
			kind := of(t, "kind", kinds...)
			used[kind] = true
			objects = append(objects, attacksFromTheOtherAPI[kind](t))
		}
		before, after := decide(rules, inTheOtherAPI, true, world), decide(rules, inTheOtherAPI, true, world, objects)
		for _, law := range attackLaws {
			if accepted["check"][law] == "" || !used["check"] || !slices.ContainsFunc(world, ofMedik8s) {
				require.Equal(t, before[law], after[law], "%s changed by %v of the namespace of the same name", law, slices.Sorted(maps.Keys(used)))
			}
		}
	}
}

// TestLawsAttackerOfTheOtherAPI: nothing that is written in a namespace of one API changes what is decided about that of its name on
// the other one.
func TestLawsAttackerOfTheOtherAPI(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(attacksFromTheOtherAPI))
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { law.Check(t, attackFromTheOtherAPI(kind)) })
	}
	t.Run("all", func(t *testing.T) { law.Check(t, attackFromTheOtherAPI(kinds...)) })
}
