package redfishsim

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
)

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
