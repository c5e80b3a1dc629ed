package config

import (
	"fmt"

	"github.com/fenced/fenced/internal/bmc"
)

// The most levels of a host, and the most devices of a level: an error beyond
// any server that is built.
const (
	maxLevels  = 8
	maxDevices = 8
)

// levels reads the ways to a host's power: bmc, which is short for one level
// with one device, or levels.
func (r *reader) levels(key string, y hostYAML) (levels []bmc.Level, passwords [][]PasswordSource, places [][]string) {
	list, at := y.Levels, func(i, j int) string { return fmt.Sprintf("%s.levels[%d].devices[%d]", key, i, j) }
	switch {
	case y.BMC.Line != 0 && len(y.Levels) > 0:
		r.refuse(y.Line, key, "has both bmc and levels; bmc is short for one level with one device")
		return nil, nil, nil
	case y.BMC.Line != 0:
		list, at = []levelYAML{{Devices: []deviceYAML{y.BMC}}}, func(int, int) string { return key + ".bmc" }
	case len(y.Levels) == 0:
		r.refuse(y.Line, key, "bmc is missing")
	case len(y.Levels) > maxLevels:
		r.refuse(y.Line, key+".levels", "has %d levels; %d is the most", len(y.Levels), maxLevels)
		return nil, nil, nil
	}
	seen := earlierDevices{}
	for i, l := range list {
		levelKey := fmt.Sprintf("%s.levels[%d]", key, i)
		if n := len(l.Devices); n == 0 || n > maxDevices {
			r.refuse(l.Line, levelKey+".devices", "has %d devices; a level has 1 to %d", n, maxDevices)
			continue
		}
		level := bmc.Level{Devices: make([]bmc.Device, len(l.Devices))}
		sources, where := make([]PasswordSource, len(l.Devices)), make([]string, len(l.Devices))
		for j, d := range l.Devices {
			before := len(r.errs)
			level.Devices[j], sources[j] = r.device(at(i, j), d)
			level.Devices[j].SystemUUID = y.UUID
			where[j] = r.at(r.lineOf(at(i, j), d.Line)) + ": " + at(i, j)
			if len(r.errs) == before {
				r.repeated(at(i, j), d, seen.add(i, level.Devices[j]), i)
			}
		}
		levels, passwords, places = append(levels, level), append(passwords, sources), append(places, where)
	}
	return levels, passwords, places
}

// repeated refuses a device that an earlier one of the same host is already: in
// one level it would count for two, and in the next it would fail again.
func (r *reader) repeated(key string, d deviceYAML, first, level int) {
	switch {
	case first == level:
		r.refuse(d.Line, key, "the same device stands in this level already")
	case first >= 0:
		r.refuse(d.Line, key, "levels[%d] has this device with the same driver already; trying it again helps nothing", first)
	}
}

// earlierDevices are those of one host, with their levels.
type earlierDevices map[int][]bmc.Device

// add notes a device and gives the level that has it already, -1 when none has.
// Another level may reach it by another driver.
func (seen earlierDevices) add(level int, d bmc.Device) (first int) {
	first = -1
	for l := 0; l <= level && first < 0; l++ {
		for _, e := range seen[l] {
			sameDriver := e.Driver == d.Driver && e.Provider == d.Provider && e.Agent == d.Agent
			if overlap(e, d) && (sameDriver || l == level) {
				first = l
			}
		}
	}
	seen[level] = append(seen[level], d)
	return first
}
