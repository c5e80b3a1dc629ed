package redfish

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fenced/fenced/internal/bmc"
)

// handshake is the error of the TLS handshake of one request. It is atomic,
// because a handshake may end after its request.
type handshake struct{ err atomic.Pointer[error] }

// done is for httptrace.ClientTrace.
func (h *handshake) done(_ tls.ConnectionState, err error) {
	if err != nil {
		h.err.Store(&err)
	}
}

// explain returns err of the request with its Kind and a hint, if BMC and fenced
// could not agree on TLS. Errors of the network and of the certificate check stay
// as they are.
func (h *handshake) explain(err error, t bmc.TLS) error {
	failed := h.err.Load()
	if failed == nil || !errors.Is(err, *failed) || !isDisagreement(err) {
		return err
	}
	return &hintError{tlsHint(err, t), failf(bmc.KindTLS, "no TLS connection: %w", err)}
}

// The alerts with which a TLS server refuses what a client offers. An alert like
// internal_error may pass, so it stays an error of the network.
const (
	alertHandshakeFailure     tls.AlertError = 40
	alertIllegalParameter     tls.AlertError = 47
	alertProtocolVersion      tls.AlertError = 70
	alertInsufficientSecurity tls.AlertError = 71
	alertMissingExtension     tls.AlertError = 109
	alertUnrecognizedName     tls.AlertError = 112
)

var refusals = []tls.AlertError{
	alertHandshakeFailure, alertIllegalParameter, alertProtocolVersion, alertInsufficientSecurity,
	alertMissingExtension, alertUnrecognizedName,
}

// isDisagreement reports whether err of a handshake means that both sides were
// there and could not agree.
func isDisagreement(err error) bool {
	if _, known := errors.AsType[*kindError](err); known {
		return false
	}
	if _, known := errors.AsType[*tls.CertificateVerificationError](err); known {
		return false
	}
	if _, noTLS := errors.AsType[tls.RecordHeaderError](err); noTLS {
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return slices.ContainsFunc(refusals, func(a tls.AlertError) bool { return isAlert(err, a) })
	}
	var network net.Error
	return !errors.As(err, &network) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// isAlert reports whether the server sent this alert. crypto/tls has a type for it
// only in QUIC; the text is the same.
func isAlert(err error, a tls.AlertError) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error" && op.Err.Error() == a.Error()
}

// tlsHint is what to do about err of a handshake; "" if nothing is known.
func tlsHint(err error, t bmc.TLS) string {
	text := err.Error()
	switch {
	case isAlert(err, alertProtocolVersion), strings.Contains(text, "unsupported protocol version"):
		return "the BMC offers only TLS 1.1 or older, and fenced needs TLS 1.2; update its firmware, or use driver ipmi"
	case isAlert(err, alertHandshakeFailure) && !t.RSAKeyExchange, isAlert(err, alertInsufficientSecurity) && !t.RSAKeyExchange:
		return "the BMC offers no cipher suite that fenced accepts; update its firmware; if it has only RSA key exchange, " +
			"set tls.rsaKeyExchange in hosts.d; if it has only DHE, use driver ipmi or a fence agent"
	case isAlert(err, alertHandshakeFailure), isAlert(err, alertInsufficientSecurity):
		return "the BMC offers no cipher suite that fenced accepts, not even with tls.rsaKeyExchange; it may have only DHE; " +
			"update its firmware, or use driver ipmi or a fence agent"
	case strings.Contains(text, "failed to parse certificate"):
		return "the BMC's certificate violates the standard; create a new one on the BMC"
	case strings.Contains(text, "keys are insecure"), strings.Contains(text, "RSA key"):
		return "the key of the BMC's certificate has an unusable length; create a new one with 2048 bits on the BMC"
	}
	return ""
}
