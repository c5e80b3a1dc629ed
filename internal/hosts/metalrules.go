package hosts

import (
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// MetalRules is what the administrator lets a BareMetalHost say about its BMC. Whoever may write
// one need not be trusted with the password that is sent there. // I10
type MetalRules struct {
	// Networks are where its BMC may be; nil: anywhere.
	Networks *bmc.Networks
	// PlainHTTP allows http. Unverified allows https without verification of the certificate.
	PlainHTTP, Unverified bool
}

// refuse refuses what only the configuration can allow, and no enrolment.
func (r MetalRules) refuse(h bmc.Host) *reason.Refusal {
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			why := r.Networks.RefuseHost(d.Endpoint.Host)
			switch {
			case why != "":
				why += ": allow it with bmcNetworks in fenced.yaml"
			case d.Endpoint.Plain && !r.PlainHTTP:
				why = "the password would go in the clear: use https, or set bareMetalHosts.plainHTTP in fenced.yaml"
			case d.Endpoint.Protocol == bmc.ProtocolRedfish && d.TLS.InsecureSkipVerify && !r.Unverified:
				why = "it wants no certificate verified, so anybody could be sent the password:" +
					" write the host into hosts.d with tls.ca or tls.pinSHA256, or set bareMetalHosts.unverified in fenced.yaml"
			}
			if why != "" {
				return &reason.Refusal{Reason: reason.InvalidHost, Message: h.Source + ", " + d.String() + ": " + why}
			}
		}
	}
	return nil
}
