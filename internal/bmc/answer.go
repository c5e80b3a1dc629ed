package bmc

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// Printable returns at most limit bytes of a text from a device, without control
// characters, for people and logs.
func Printable(s string, limit int) string {
	if len(s) > 4*limit { // enough, whatever is dropped below
		s = s[:4*limit]
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// NeedsBody reports whether an answer is worth nothing without its body: that of a
// read. Of every other answer, the status and the headers say what happened.
func NeedsBody(resp *http.Response) bool {
	return resp.Request.Method == http.MethodGet && resp.StatusCode >= 200 && resp.StatusCode < 300
}

// ReadBody reads at most limit bytes of the body of an answer. One that is not needed
// may end early or lie about its length: iDRAC 8 sends 401 and cuts the connection. It
// may also never come, so the caller limits the time.
func ReadBody(resp *http.Response, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if NeedsBody(resp) {
		return b, err
	}
	return b, nil // a text for people
}

// KindOfStatus maps the HTTP status of a failed Redfish request to a Kind.
func KindOfStatus(status int) Kind {
	switch status {
	case http.StatusUnauthorized:
		return KindAuth
	case http.StatusForbidden:
		return KindPrivilege
	case http.StatusNotFound, http.StatusGone:
		return KindIdentity
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return KindUnsupported
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return KindBusy
	}
	return KindProtocol
}

// KindOfTransport returns the Kind of an error of a connection: of TCP, of TLS, of a name, of a limit
// in time; "" for any other error.
func KindOfTransport(err error) Kind {
	var timeout interface{ Timeout() bool }
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, network := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	switch {
	case certificate:
		return KindTLS
	case errors.Is(err, syscall.ECONNREFUSED):
		return KindRefused
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout(), network, name,
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return KindUnreachable
	}
	return ""
}
