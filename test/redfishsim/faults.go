package redfishsim

import "time"

// Faults are what the service does wrong. The zero value is an honest BMC.
type Faults struct {
	// Latency delays every answer, LoginLatency the answer to a login: the
	// session exists before it is sent.
	Latency, LoginLatency time.Duration
	// RTT is the round-trip time of the network, for connections made from now
	// on: TCP, TLS and each request take one.
	RTT time.Duration
	// HalfOpen lets the kernel accept connections that nobody ever reads, and
	// answers nothing on those that exist.
	HalfOpen bool
	// Hang takes requests, and never answers.
	Hang bool
	// CutAnswers cuts the connection in the middle of each answer.
	CutAnswers bool
	// CloseConnections announces the end of the connection with each answer;
	// CloseSilently ends it without a word.
	CloseConnections, CloseSilently bool
	// Body is what is wrong with the body of each answer but that of a read that
	// succeeds, and with that one too if BodyOfReads.
	Body        BodyFault
	BodyOfReads bool
	// KeepSessions lets sessions survive a restart, as OpenBMC does.
	KeepSessions bool
	// Unauthorized is how many of the next requests are refused with 401,
	// whatever they carry; logins and the service root are not counted.
	Unauthorized int
	// ClockSkew is how far the BMC's clock is ahead.
	ClockSkew time.Duration
	// NoSystemsLink is a root that does not name the systems, as Lite-On has it.
	NoSystemsLink bool
	// NoManager is a service without managers.
	NoManager bool
	// Busy is how many of the next requests get 503; each counts it down.
	Busy int
	// RetryAfter is the header of those answers, as it is; empty is none.
	RetryAfter string
	// LoginStatus refuses logins with this HTTP status, when not 0.
	LoginStatus int
	// SessionLimit is how many sessions may be open; 0 is no limit.
	SessionLimit int
	// NoSessions is a service without sessions, in its root and for real.
	NoSessions bool
	// NoBasic refuses Basic authentication.
	NoBasic bool
	// BasicOnly names sessions in its root, and demands Basic authentication for
	// everything else, a login too, as proxmox-redfish does.
	BasicOnly bool
	// PasswordChange takes logins, and refuses all else until the password is changed,
	// as OpenBMC does with the one that it comes with.
	PasswordChange bool
	// Gzip compresses each answer, asked or not, as iLO 5 does since 2.30.
	Gzip bool
	// Encoding is named as the compression of each answer, which has none.
	Encoding string
	// Slashes redirects each path without a slash at its end, with 308 as iLO 5 does.
	Slashes bool
	// MembersTwice lists each member of the collection twice.
	MembersTwice bool
	// HugeBody lets the answer about a system have this many bytes more.
	HugeBody int
	// RedirectTo answers requests about a system with 307 to this URL plus the path.
	// RedirectStatus replaces 307, when not 0.
	RedirectTo     string
	RedirectStatus int
	// Member replaces the URI of the first member of the collection.
	Member string
	// EchoCredentials puts the credentials of a request into error messages.
	EchoCredentials bool
}

// Quirks are what the BMC does wrong about one system. The zero value is an
// honest one that switches at once.
type Quirks struct {
	// Lag is how long a power change takes; PoweringOff or PoweringOn meanwhile.
	Lag time.Duration
	// Early says On or Off at once, while the change takes Lag; a power on in
	// that window is accepted and dropped.
	Early bool
	// OffThenOn says Off for this long after a power off, which was not done at all.
	OffThenOn time.Duration
	// IgnoreOff accepts a power off and does nothing, IgnoreOn a power on.
	IgnoreOff, IgnoreOn bool
	// LieOff says Off, whatever the host is.
	LieOff bool
	// SayPower is JSON to give as PowerState in place of the truth.
	SayPower string
	// Repeat are more members of the answer, in JSON: of a name that is there already,
	// clients take the first value, the last one, or none.
	Repeat string
	// RefuseRead is the status that answers every read of the system, when not 0;
	// HangRead answers none.
	RefuseRead int
	HangRead   bool
	// UUID is claimed in place of the true one, when not empty.
	UUID string
	// NoUUID leaves the UUID out, as OpenBMC as it comes and Cray EX do.
	NoUUID bool
	// ResetTypes are the allowed types; empty is a usual set.
	ResetTypes []string
	// ActionInfo lists the allowed types there and not beside the action;
	// NoResetTypes lists them nowhere; NoReset offers no action at all.
	ActionInfo, NoResetTypes, NoReset bool
	// RefuseSame is the status when the host is in the wanted state already;
	// 0 is plain success.
	RefuseSame int
	// RefuseReset is the status that answers every reset, when not 0.
	RefuseReset int
	// Task answers a reset with 202 and a task.
	Task bool
	// NeedETag is the status of a reset without the ETag of the system in If-Match,
	// when not 0: AMI MegaRAC has 428, Huawei iBMC 412. Otherwise a reset with
	// If-Match is refused, as iDRAC 10 does.
	NeedETag int
	// ETag replaces the ETag header of the system; "none" leaves it out.
	ETag string
	// Target replaces the target of the action.
	Target string
	// DropReset carries a reset out, and cuts the connection instead of answering.
	DropReset bool
	// HangReset carries a reset out, and does not answer for this long.
	HangReset time.Duration
	// ODataType replaces the type of the resource.
	ODataType string
}

// Faults changes what the service does wrong, at once.
func (s *Server) Faults(change func(*Faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.faults)
}

// Quirks changes what the BMC does wrong about this system, at once.
func (s *System) Quirks(change func(*Quirks)) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	change(&s.quirks)
}
