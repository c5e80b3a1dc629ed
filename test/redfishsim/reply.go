package redfishsim

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strconv"
)

// reply sends v as JSON.
func (s *Server) reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("redfishsim: an answer of our own does not marshal: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("OData-Version", "4.0")
	s.mu.Lock()
	f := s.faults
	s.mu.Unlock()
	if f.Encoding != "" {
		w.Header().Set("Content-Encoding", f.Encoding)
	}
	if f.Gzip {
		w.Header().Set("Content-Encoding", "gzip")
		b = compress(b)
	}
	if f.CutAnswers {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		b = b[:len(b)/2]
	}
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may be gone
	if f.CutAnswers {
		_ = http.NewResponseController(w).Flush() // else not even half would leave
		panic(http.ErrAbortHandler)               // net/http cuts the connection
	}
}

func compress(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b) // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}
