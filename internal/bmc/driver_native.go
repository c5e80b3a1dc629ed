package bmc

func init() {
	declare(Descriptor{
		Name: DriverIPMI, Assurance: AssuranceStrict, Identifies: true, KeepsSession: true,
		Protocols: []Protocol{ProtocolIPMI},
		schemes: map[string]scheme{
			"ipmi": {protocol: ProtocolIPMI, port: 623}, "libvirt": {protocol: ProtocolIPMI, port: 623},
			// Metal3 switched an iRMC by IPMI at the host of the address. The port of
			// the address was that of its SCCI interface, which switches no power.
			"irmc": {protocol: ProtocolIPMI, port: 623, portIsOther: true},
		},
		DistinguishHint: "correct the address",
	})
}

func init() {
	declare(Descriptor{
		Name: DriverRedfish, Assurance: AssuranceStrict, Identifies: true, KeepsSession: true,
		Protocols: []Protocol{ProtocolRedfish},
		schemes: map[string]scheme{
			"redfish": {protocol: ProtocolRedfish}, "redfish-virtualmedia": {protocol: ProtocolRedfish}, "redfish-uefihttp": {protocol: ProtocolRedfish},
			"ilo5-redfish": {protocol: ProtocolRedfish}, "ilo5-virtualmedia": {protocol: ProtocolRedfish},
			"idrac-redfish": {protocol: ProtocolRedfish}, "idrac-virtualmedia": {protocol: ProtocolRedfish},

			// Metal3 removed these schemes, and old clusters still use them. Each of
			// these BMCs has a Redfish service on the web server of the old protocol.
			"idrac": {protocol: ProtocolRedfish, pathIsOther: true}, // WS-Management
			"ibmc":  {protocol: ProtocolRedfish, pathIsOther: true},
			"ilo4":  {protocol: ProtocolRedfish, pathIsOther: true}, "ilo4-virtualmedia": {protocol: ProtocolRedfish, pathIsOther: true},
			"ilo5": {protocol: ProtocolRedfish, pathIsOther: true},

			// the form in which fenced itself writes a Redfish address
			"https": {protocol: ProtocolRedfish}, "http": {protocol: ProtocolRedfish},
		},
		DistinguishHint: correctPath,
	})
}

// correctPath is the hint for services that may have several systems.
const correctPath = "correct the address, or write the path of each one's system, as /redfish/v1/Systems/1"
