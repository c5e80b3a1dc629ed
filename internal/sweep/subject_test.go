package sweep

import (
	"errors"
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
)

// fill sets every field of a value that is zero, each to something of its own.
func fill(t *testing.T, v reflect.Value, next *int) {
	*next++
	switch x := v.Addr().Interface().(type) {
	case *bmc.Secret:
		*x = bmc.NewSecret(strconv.Itoa(*next))
		return
	case *error:
		*x = errors.New(strconv.Itoa(*next))
		return
	case **bmc.Networks:
		*x = &bmc.Networks{}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strconv.Itoa(*next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*next))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), next)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), next)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), next)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, next)
		fill(t, value, next)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		require.Fail(t, "a field of a kind that this test does not know", v.Type().String())
	}
}

// What is kept of a subject is all of it: no field may be lost, whatever is shared.
func TestSubjectIsKeptWhole(t *testing.T) {
	var s hosts.Subject
	next := 0
	fill(t, reflect.ValueOf(&s).Elem(), &next)
	s.Err = nil // one that cannot be used is not kept
	bare := s.Host
	bare.Levels = []bmc.Level{{Devices: make([]bmc.Device, 2)}, {Devices: make([]bmc.Device, 2)}}
	for i, l := range s.Host.Levels {
		for j, d := range l.Devices {
			bare.Levels[i].Devices[j] = d.With(bmc.Access{Username: "as it is written"})
		}
	}
	other := bare
	other.Source = "elsewhere"
	missing := bare
	missing.Levels = bare.Levels[:1]
	for name, tc := range map[string]struct {
		indexed *bmc.Host
		shared  bool
	}{"indexed": {&bare, true}, "indexed as it was before": {&other, false}, "indexed with other devices": {&missing, false}, "not indexed": {nil, false}} {
		s.Bare = tc.indexed
		x := newSubject(s, nil)
		assert.Equal(t, tc.shared, x.bare == &bare, name)
		got := x.whole()
		s.Bare = got.Bare
		assert.Equal(t, s, got, name)
		assert.Equal(t, s.Host.Levels[1].Devices[1], x.device(deviceID{1, 1}), name)
		next := newSubject(s, x.access)
		assert.Same(t, &x.access[0], &next.access[0], "the same Access is kept once")
		assert.Equal(t, "as it is written", bare.Levels[0].Devices[0].Username, "nobody changes what is shared")
	}
	changed := s
	changed.Host = s.Host.WithAccesses(s.Host.Accesses())
	changed.Host.Levels[1].Devices[1].Password = bmc.NewSecret("another")
	was := newSubject(s, nil)
	assert.Equal(t, changed.Host, newSubject(changed, was.access).whole().Host, "another password is not shared")
}

// What is asked whether a host may be switched is told the same as with the devices as they are, whoever enrolled them. // I8
func TestSubjectInQuestion(t *testing.T) {
	device := func(change func(*bmc.Device)) bmc.Device {
		d := bmc.Device{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "192.0.2.1", Port: 623}, Secret: "ns/bmc", Username: "fence"}
		change(&d)
		return d
	}
	agent := bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc", Endpoint: bmc.Endpoint{Host: "pdu"}, SecretParameters: map[string]bmc.Secret{"community": bmc.NewSecret("x")}}
	for name, tc := range map[string]struct {
		devices []bmc.Device
		shares  bool
	}{
		"a BMC":                        {[]bmc.Device{device(func(*bmc.Device) {})}, true},
		"a BMC that was enrolled":      {[]bmc.Device{device(func(d *bmc.Device) { d.Enrolled = true })}, false},
		"a BMC with another UUID":      {[]bmc.Device{device(func(d *bmc.Device) { d.IgnoreUUID = true })}, false},
		"a BMC with secret parameters": {[]bmc.Device{device(func(d *bmc.Device) { d.SecretParameters = agent.SecretParameters })}, false},
		"an outlet":                    {[]bmc.Device{agent}, false},
		"a BMC and an outlet below it": {[]bmc.Device{device(func(*bmc.Device) {}), agent}, false},
	} {
		h := bmc.Host{Name: "c/n-1"}
		for _, d := range tc.devices {
			h.Levels = append(h.Levels, bmc.Level{Devices: []bmc.Device{d}})
		}
		bare := h.WithAccesses(make([]bmc.Access, len(tc.devices)))
		x := newSubject(hosts.Subject{Cluster: "c", Node: "n-1", Host: h, Bare: &bare}, nil)
		got, want := x.inQuestion(), x.whole()
		require.Same(t, &bare, x.bare, name)
		assert.Equal(t, tc.shares, &got.Host.Levels[0] == &bare.Levels[0], name)
		for i, l := range want.Host.Levels {
			g, w := got.Host.Levels[i].Devices[0], l.Devices[0]
			assert.Equal(t, w.Identifies(), g.Identifies(), name)
			assert.Equal(t, w.Fingerprint(), g.Fingerprint(), name)
			assert.Equal(t, w.With(bmc.Access{}), g.With(bmc.Access{}), name)
			assert.Equal(t, w.Assurance(), x.kept(deviceID{i, 0}).Assurance(), name)
		}
		got.Host, want.Host = bmc.Host{}, bmc.Host{}
		assert.Equal(t, want, got, name)
	}
}
