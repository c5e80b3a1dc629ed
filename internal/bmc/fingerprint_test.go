package bmc

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// I8: an enrolment ends with whatever chose the machine.
func TestFingerprint(t *testing.T) {
	device := func() Device {
		return Device{Driver: DriverFenceAgent, Agent: "fence_lpar", Endpoint: Endpoint{Host: "hmc", Port: 22},
			Parameters: map[string]string{"plug": "node1", "managed": "a"}, Username: "u", Password: NewSecret("p"), SystemUUID: "s"}
	}
	was := device().Fingerprint()
	assert.Regexp(t, regexp.MustCompile("^[0-9a-f]{16}$"), was)
	for what, change := range map[string]func(*Device){
		"driver":            func(d *Device) { d.Driver = DriverBMCLib },
		"provider":          func(d *Device) { d.Provider = "gofish" },
		"agent":             func(d *Device) { d.Agent = "fence_hmc" },
		"protocol":          func(d *Device) { d.Endpoint.Protocol = ProtocolRedfish },
		"host":              func(d *Device) { d.Endpoint.Host = "hmc2" },
		"port":              func(d *Device) { d.Endpoint.Port = 2222 },
		"system":            func(d *Device) { d.Endpoint.System = "/redfish/v1/Systems/2" },
		"parameter":         func(d *Device) { d.Parameters["managed"] = "b" },
		"parameter more":    func(d *Device) { d.Parameters["target"] = "0x20" },
		"parameter less":    func(d *Device) { delete(d.Parameters, "managed") },
		"name and value":    func(d *Device) { d.Parameters = map[string]string{"plug": "node1,managed=a"} },
		"secret given":      func(d *Device) { d.SecretParameters = map[string]Secret{"community": NewSecret("c")} },
		"provider is agent": func(d *Device) { d.Provider, d.Agent = d.Agent, "" },
	} {
		d := device()
		change(&d)
		assert.NotEqual(t, was, d.Fingerprint(), what)
	}
	for what, change := range map[string]func(*Device){
		"user":           func(d *Device) { d.Username = "v" },
		"password":       func(d *Device) { d.Password = NewSecret("q") },
		"pinned UUID":    func(d *Device) { d.SystemUUID = "t" },
		"way of writing": func(d *Device) { d.Endpoint.Host = "HMC." },
		"trust":          func(d *Device) { d.TLS.InsecureSkipVerify = true },
	} {
		d := device()
		change(&d)
		assert.Equal(t, was, d.Fingerprint(), what)
	}
	none, empty := Device{}, Device{Parameters: map[string]string{}}
	assert.Equal(t, none.Fingerprint(), empty.Fingerprint())
}
