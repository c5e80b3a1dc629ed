package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmclib"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/fenceagent"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/redfish"
)

// inventory is the administrator's inventory, with passwords read at each use.
type inventory map[hostKey]*config.HostEntry

// hostKey names an entry: of is the name of a Node, or the "namespace/name" of a Machine.
type hostKey struct{ cluster, of string }

// newInventory makes the inventory of a list, whose entries it keeps.
func newInventory(list []config.HostEntry) inventory {
	h := make(inventory, len(list))
	for i := range list {
		e := &list[i]
		h[hostKey{e.Cluster, e.Of()}] = e
	}
	return h
}

// List implements hosts.Inventory, in name order.
func (h inventory) List(cluster string) (names []string) {
	for k := range h {
		if k.cluster == cluster {
			names = append(names, k.of)
		}
	}
	slices.Sort(names)
	return names
}

// Protected implements hosts.Inventory.
func (h inventory) Protected(cluster, of string) bool {
	e := h[hostKey{cluster, of}]
	return e != nil && e.Protected
}

// Find implements hosts.Inventory. A password that only the cluster's API can give
// is left to the engine.
func (h inventory) Find(_ context.Context, cluster, of string) (bmc.Host, bool, error) {
	e, ok := h[hostKey{cluster, of}]
	if !ok {
		return bmc.Host{}, false, nil
	}
	host := e.ReadPasswords()
	for _, l := range host.Levels {
		for i, d := range l.Devices {
			if d.Unusable != nil {
				l.Devices[i].Unusable = &reason.Refusal{Reason: reason.SecretMissing, Message: d.Unusable.Error()}
			}
		}
	}
	return host, true, nil
}

// drivers makes the Power of each driver that package bmc describes.
var drivers = map[bmc.Driver]func(bmc.Device, bmc.Timing) (bmc.Power, error){
	bmc.DriverIPMI:       func(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return ipmi.New(d, t), nil },
	bmc.DriverRedfish:    func(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return redfish.New(d, t) },
	bmc.DriverBMCLib:     func(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return bmclib.New(d, t) },
	bmc.DriverFenceAgent: func(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return fenceagent.New(d, t) },
}

// opener gives a device to its driver.
func opener(read time.Duration) bmc.Opener {
	return func(d bmc.Device) (bmc.Power, error) {
		if open := drivers[d.Driver]; open != nil {
			return open(d, power.Timing(d, read))
		}
		return nil, &bmc.Error{Kind: bmc.KindUnsupported, Op: "open", Addr: d.String(),
			Err: fmt.Errorf("there is no driver %q", d.Driver)}
	}
}

func describeHosts(list []config.HostEntry) string {
	return fmt.Sprintf("%d hosts in hosts.d", len(list))
}
