package redfishsim

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"time"
)

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
	// NoResumption fails each handshake of TLS 1.3 that is to resume a session.
	NoResumption bool
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
	// Busy is how many of the next requests get 503, or BusyAs when it is not 0; each counts it down.
	Busy, BusyAs int
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
	// 0 is plain success. RefuseBody replaces the body of that answer.
	RefuseSame int
	RefuseBody []byte
	// AcceptAs is the status of a reset that is accepted, when not 0, and AcceptBody its body.
	AcceptAs   int
	AcceptBody []byte
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

// listener accepts connections as the network and the BMC's kernel would.
type listener struct {
	net.Listener
	srv *Server
}

// Accept gives the next connection that anyone will answer.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.srv.mu.Lock()
		f := l.srv.faults
		if f.HalfOpen {
			l.srv.held = append(l.srv.held, c)
		}
		l.srv.mu.Unlock()
		switch {
		case f.HalfOpen: // the kernel accepted; nobody reads
		case f.RTT > 0:
			return distant(c, f.RTT), nil
		default:
			return c, nil
		}
	}
}

// distant is c as seen over a network with this round-trip time. The TCP
// handshake is over when we see c, so its round trip delays the first bytes.
func distant(c net.Conn, rtt time.Duration) net.Conn {
	here, there := net.Pipe()
	go carry(there, c, rtt/2, rtt)
	go carry(c, there, rtt/2, 0)
	return here
}

// parcel is bytes under way, and when they arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry copies from one connection to another, each byte after delay and the
// first ones after more than that, and closes both at the end of either.
func carry(to, from net.Conn, delay, first time.Duration) {
	underway := make(chan parcel, 256)
	go func() {
		defer close(underway)
		opened := time.Now().Add(first)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				sent := time.Now()
				if sent.Before(opened) {
					sent = opened
				}
				underway <- parcel{b[:n], sent.Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range underway {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			_ = from.Close() // which ends the reader; what is under way is lost, as it would be
		}
	}
	_ = to.Close() // its other end may have closed it already
}

// track keeps the open connections, so that a restart can cut them.
func (s *Server) track(c net.Conn, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open {
		s.conns++
		s.open[c] = true
		return
	}
	delete(s.open, c)
}

// cut closes all connections that anyone answers.
func (s *Server) cut() {
	s.mu.Lock()
	var open []net.Conn
	for c := range s.open {
		open = append(open, c)
	}
	s.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // may be closed already
	}
}

// BodyFault is what is wrong with the body of an answer.
type BodyFault string

const (
	// BodyCut: it is chunked, and the connection ends before the first chunk, as iDRAC 8
	// answers 401.
	BodyCut BodyFault = "cut"
	// BodyHalf: the connection ends after half of it.
	BodyHalf BodyFault = "half"
	// BodyBeyond: it is longer than its Content-Length.
	BodyBeyond BodyFault = "beyond"
	// BodyBadChunk: the length of its second chunk is no number.
	BodyBadChunk BodyFault = "bad chunk"
	// BodyStops: half of it comes, and then nothing.
	BodyStops BodyFault = "stops"
)

// BodyFaults are all of them.
var BodyFaults = []BodyFault{BodyCut, BodyHalf, BodyBeyond, BodyBadChunk, BodyStops}

// serveRaw answers r and what follows on its connection byte by byte, which net/http
// would not do.
func (s *Server) serveRaw(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic("redfishsim: " + err.Error()) // it is HTTP/1.1
	}
	defer s.drop(conn)
	for err == nil && s.answerRaw(conn, r) {
		r, err = http.ReadRequest(buffered.Reader)
	}
}

// answerRaw answers r, and says whether the connection stays.
func (s *Server) answerRaw(conn net.Conn, r *http.Request) bool {
	s.mu.Lock()
	f := s.faults
	s.mu.Unlock()
	recorder := httptest.NewRecorder()
	s.answer(recorder, r)
	_, _ = io.Copy(io.Discard, r.Body) // else it would be taken for the next request
	got := recorder.Result()
	if r.Close {
		got.Header.Set("Connection", "close")
	}
	fault := f.Body
	if r.Method == http.MethodGet && got.StatusCode < http.StatusMultipleChoices && !f.BodyOfReads {
		fault = ""
	}
	_, err := conn.Write(raw(got, recorder.Body.Bytes(), fault))
	ends := fault == BodyCut || fault == BodyHalf || f.CloseSilently || got.Header.Get("Connection") == "close"
	return err == nil && !ends
}

// raw is an answer as it goes over the connection.
func raw(got *http.Response, body []byte, fault BodyFault) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", got.StatusCode, http.StatusText(got.StatusCode))
	half := body[:len(body)/2]
	length, sent := fmt.Sprintf("Content-Length: %d", len(body)), body
	switch fault {
	case BodyCut:
		length, sent = "Transfer-Encoding: chunked", nil
	case BodyHalf:
		sent = half
	case BodyStops: // an empty one, too
		length, sent = fmt.Sprintf("Content-Length: %d", len(body)+1), half
	case BodyBeyond:
		length = fmt.Sprintf("Content-Length: %d", len(half))
	case BodyBadChunk:
		length = "Transfer-Encoding: chunked"
		sent = fmt.Appendf(nil, "%x\r\n%s\r\nlength\r\n", len(half), half)
	}
	got.Header.Del("Content-Length")
	_ = got.Header.Write(&b) // a buffer takes everything
	b.WriteString(length + "\r\n\r\n")
	b.Write(sent)
	return b.Bytes()
}

// drop closes a connection that net/http no longer knows.
func (s *Server) drop(conn net.Conn) {
	s.track(conn, false)
	_ = conn.Close()
}
