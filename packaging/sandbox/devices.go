package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmclib"
	"github.com/fenced/fenced/internal/fenceagent"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

//go:embed terminal.sh
var terminal []byte

// device is one way to a host, and the constructor of its driver.
type device struct {
	name string
	open func(bmc.Device, bmc.Timing) (bmc.Power, error)
	bmc.Device
}

func native(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return ipmi.New(d, t), nil }

func web(d bmc.Device, t bmc.Timing) (bmc.Power, error) { return redfish.New(d, t) }

// devices starts the simulators, and gives every kind of way to them. They run
// until the end of ctx.
func devices(ctx context.Context) ([]device, error) {
	inside, err := ipmisim.StartGo(ctx, ipmisim.Options{Suites: []int{17}})
	if err != nil {
		return nil, err
	}
	debian, err := ipmisim.StartDebian(ctx, ipmisim.Options{})
	if err != nil {
		return nil, err
	}
	service, err := redfishsim.Start(redfishsim.Options{})
	if err != nil {
		return nil, err
	}
	const console = "/tmp/terminal"
	if err := os.WriteFile(console, terminal, 0o700); err != nil {
		return nil, err
	}
	lan, err := at("ipmi://" + inside.Addr())
	if err != nil {
		return nil, err
	}
	third, err := at("ipmi://" + debian.Addr())
	if err != nil {
		return nil, err
	}
	https, err := at(service.BMCAddress())
	if err != nil {
		return nil, err
	}
	https.TLS = bmc.TLS{CA: service.CAFile()}
	lib, redfishLib := lan, https
	lib.Driver, redfishLib.Driver = bmc.DriverBMCLib, bmc.DriverBMCLib
	lib.Endpoint.Privilege = "ADMINISTRATOR"

	return []device{
		{name: "ipmi", open: native, Device: lan},
		{name: "redfish", open: web, Device: https},
		{name: "bmclib ipmitool", open: bmclib.New, Device: lib},
		{name: "bmclib gofish", open: bmclib.New, Device: redfishLib},
		{name: "fence_ipmilan", open: fenceagent.New, Device: agent("fence_ipmilan", third,
			map[string]string{"lanplus": "1", "cipher": "3", "power_wait": "0"})},
		{name: "fence_redfish", open: fenceagent.New, Device: agent("fence_redfish", https,
			map[string]string{"ssl_insecure": "1", "systems_uri": service.System(0).URI()})},
		{name: "fence_alom on a terminal", open: fenceagent.New, Device: agent("fence_alom", lan,
			map[string]string{"ssh_path": console, "power_timeout": "1"})},
	}, nil
}

// at is a device at a simulator's address.
func at(address string) (bmc.Device, error) {
	e, err := bmc.ParseEndpoint(address)
	d := bmc.Device{Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret")}
	if e.Protocol == bmc.ProtocolIPMI {
		d.Driver = bmc.DriverIPMI
	} else {
		d.Driver = bmc.DriverRedfish
	}
	return d, err
}

// agent is a device that an agent drives at the address of d.
func agent(name string, d bmc.Device, parameters map[string]string) bmc.Device {
	return bmc.Device{Driver: bmc.DriverFenceAgent, Agent: name, Parameters: parameters,
		Endpoint: bmc.Endpoint{Host: d.Endpoint.Host, Port: d.Endpoint.Port}, Username: d.Username, Password: d.Password}
}

// hung has an agent ask a BMC that never answers, and ends it before it gives up.
func hung(ctx context.Context) error {
	sim, err := ipmisim.StartGo(ctx, ipmisim.Options{})
	if err != nil {
		return err
	}
	defer sim.Stop()
	if err := sim.Hang(true); err != nil {
		return err
	}
	d, err := at("ipmi://" + sim.Addr())
	if err != nil {
		return err
	}
	d = agent("fence_ipmilan", d, map[string]string{"lanplus": "1"})
	p, err := fenceagent.New(d, bmc.Timing{ReadTimeout: 2 * time.Second, SendTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	var took time.Duration
	for range 10 { // one try in time suffices: a busy machine makes some late
		begin := time.Now()
		if _, err = p.Read(ctx); err == nil {
			return errors.New("it was read")
		}
		if took = time.Since(begin); took <= 15*time.Second { // by itself it would give up after 20 s
			return nil
		}
	}
	return fmt.Errorf("it took %v", took)
}
