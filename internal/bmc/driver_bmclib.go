package bmc

import "fmt"

func init() {
	declare(Descriptor{
		Name: DriverBMCLib, Assurance: AssuranceLower, KeepsSession: true,
		Protocols: []Protocol{ProtocolIPMI, ProtocolRedfish},
		Providers: map[Protocol][]string{
			ProtocolIPMI:    {"ipmitool"},
			ProtocolRedfish: {"gofish", "dell", "openbmc", "asrockrack"},
		},
		NoPin:           true,
		DistinguishHint: correctPath,
		text:            func(d Device) string { return "bmclib+" + d.Endpoint.String() },
		configError:     bmclibConfigError,
		replaceable:     func(Device) bool { return true },
	})
}

func bmclibConfigError(d Device) (key, why string) {
	standard := 443
	if d.Endpoint.Plain {
		standard = 80
	}
	switch {
	case d.TLS.PinSHA256 != "":
		return "tls.pinSHA256", "driver bmclib does not check pinSHA256; give the BMC's certificate or its CA as tls.ca, or use the native driver"
	case d.Provider == "openbmc" && d.Endpoint.Port != standard:
		// The provider checks at the standard port whether the BMC is an OpenBMC,
		// whatever port is configured.
		return "address", fmt.Sprintf("provider openbmc asks only port %d, not %d; use provider gofish or the native driver", standard, d.Endpoint.Port)
	}
	return "", ""
}
