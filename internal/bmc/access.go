package bmc

import (
	"maps"
	"reflect"
	"slices"
)

// Access is what a Device has beyond what says which one it is: its account and other secrets, whether a person enrolled it, and why it cannot be
// opened. Thousands of devices have the same, so what keeps many devices keeps it apart from them.
type Access struct {
	Username         string
	Password         Secret
	PasswordFrom     string
	BMCKey           Secret
	SecretParameters map[string]Secret
	Enrolled         bool
	Unusable         error
}

// Access returns that of the device.
func (d *Device) Access() Access {
	return Access{d.Username, d.Password, d.PasswordFrom, d.BMCKey, d.SecretParameters, d.Enrolled, d.Unusable}
}

// With returns the device with another Access.
func (d Device) With(a Access) Device {
	d.Username, d.Password, d.PasswordFrom, d.BMCKey, d.SecretParameters, d.Enrolled, d.Unusable =
		a.Username, a.Password, a.PasswordFrom, a.BMCKey, a.SecretParameters, a.Enrolled, a.Unusable
	return d
}

// Accesses are those of all devices of the host, in the order of the levels.
func (h *Host) Accesses() (all []Access) {
	for _, l := range h.Levels {
		for i := range l.Devices {
			all = append(all, l.Devices[i].Access())
		}
	}
	return all
}

// WithAccesses returns a copy of the host with what Accesses returned of another one with the same devices.
func (h Host) WithAccesses(all []Access) Host {
	h.Levels = slices.Clone(h.Levels)
	for i, l := range h.Levels {
		h.Levels[i].Devices = slices.Clone(l.Devices)
		for j, d := range l.Devices {
			h.Levels[i].Devices[j], all = d.With(all[0]), all[1:]
		}
	}
	return h
}

// WithSecretsOf returns a copy of the host with the accounts that another one with the same devices has from Secrets.
func (h Host) WithSecretsOf(o *Host) Host {
	all, own, i := o.Accesses(), h.Accesses(), 0
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			if d.Secret == "" || !d.Password.Empty() {
				all[i] = own[i]
			}
			i++
		}
	}
	return h.WithAccesses(all)
}

// SameButAccess reports whether two hosts differ in nothing but Access, so that one may be kept in the place of the other. All hosts are
// compared each minute, so nothing is copied for it.
func (h *Host) SameButAccess(o *Host) bool {
	if h.Name != o.Name || h.PinnedUUID != o.PinnedUUID || h.IdentityMode != o.IdentityMode || h.Protected != o.Protected || h.Source != o.Source || len(h.Levels) != len(o.Levels) {
		return false
	}
	for i, l := range h.Levels {
		others := o.Levels[i].Devices
		if len(l.Devices) != len(others) {
			return false
		}
		for j := range l.Devices {
			if !l.Devices[j].sameButAccess(&others[j]) {
				return false
			}
		}
	}
	return true
}

func (d *Device) sameButAccess(o *Device) bool {
	return d.Driver == o.Driver && d.Endpoint == o.Endpoint && d.Provider == o.Provider && d.Agent == o.Agent && maps.Equal(d.Parameters, o.Parameters) &&
		d.Secret == o.Secret && d.TLS == o.TLS && d.BasicAuth == o.BasicAuth && d.IgnoreUUID == o.IgnoreUUID && slices.Equal(d.CipherSuites, o.CipherSuites) &&
		d.SystemUUID == o.SystemUUID && (d.Networks == o.Networks || reflect.DeepEqual(d.Networks, o.Networks))
}
