package bmc

import "time"

// Host is one machine's way to its power: the address and the credentials of
// its BMC, and which identity must answer there.
type Host struct {
	// Name is the key in state, logs and locks: "cluster/node" for hosts.d,
	// "cluster/namespace/name" for a BareMetalHost.
	Name     string
	Endpoint Endpoint
	Username string
	Password Secret
	// Secret is "namespace/name" of the Kubernetes Secret that holds user name
	// and password, when they come from there.
	Secret string
	TLS    TLS
	// CipherSuites are the IPMI suites to try in order; empty is 17, then 3.
	CipherSuites []int
	// PinnedUUID is the system UUID an administrator enrolled; may be empty.
	PinnedUUID string
	// IdentityMode is "required", "pinned" or "off".
	IdentityMode string
	// Protected hosts are never fenced automatically.
	Protected bool
	// Source names where this came from, for people: a file and line, or an object.
	Source string
}

// TLS says how a Redfish service is trusted.
type TLS struct {
	CA                 string // path of a PEM file; empty = the system's pool
	PinSHA256          string // SHA-256 of the SubjectPublicKeyInfo, hex or base64
	InsecureSkipVerify bool   // only when the host's entry says so
}

// Timing bounds the power operations. All are positive.
type Timing struct {
	ReadTimeout time.Duration // one read
	SendTimeout time.Duration // one command
}
