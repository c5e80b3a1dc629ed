package bmc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestZeroPowerStateIsUnknown(t *testing.T) {
	var s PowerState
	assert.Equal(t, Unknown, s)
	assert.Equal(t, "Unknown", s.String())
	assert.Equal(t, "On", On.String())
	assert.Equal(t, "Off", Off.String())
	assert.Equal(t, "Unknown", PowerState(9).String())
}

func TestCommandsAreAbsolute(t *testing.T) { // I3
	assert.Equal(t, "off", CommandOff.String())
	assert.Equal(t, "on", CommandOn.String())
	assert.Equal(t, "no command", Command(0).String())
}

func TestErrors(t *testing.T) {
	cause := errors.New("i/o timeout")
	err := &Error{Kind: KindUnreachable, Op: "read power state", Addr: "192.0.2.13:623", Err: cause}
	assert.Equal(t, "read power state of 192.0.2.13:623: i/o timeout", err.Error())
	assert.ErrorIs(t, err, cause)
	assert.Equal(t, KindUnreachable, KindOf(fmt.Errorf("look: %w", err)))
	assert.Equal(t, KindProtocol, KindOf(cause), "an error without a kind broke the contract")
	assert.Equal(t, Kind(""), KindOf(nil))
	assert.EqualError(t, WithKind(KindTLS, cause), "i/o timeout")
	assert.ErrorIs(t, WithKind(KindTLS, cause), cause)
}

// Errors of a connection have the same kind in each driver; what is none has no kind here.
func TestKindOfTransport(t *testing.T) {
	dial := func(err error) error { return fmt.Errorf("get: %w", &net.OpError{Op: "dial", Net: "tcp", Err: err}) }
	for _, c := range []struct {
		err  error
		want Kind
	}{
		{dial(syscall.ECONNREFUSED), KindRefused},
		{dial(syscall.EHOSTUNREACH), KindUnreachable},
		{&net.DNSError{Err: "no such host", Name: "bmc"}, KindUnreachable},
		{syscall.ECONNRESET, KindUnreachable},
		{io.ErrUnexpectedEOF, KindUnreachable},
		{context.DeadlineExceeded, KindUnreachable},
		{dial(&tls.CertificateVerificationError{Err: errors.New("self-signed")}), KindTLS},
		{errors.New("not JSON"), ""},
	} {
		assert.Equal(t, c.want, KindOfTransport(c.err), "%v", c.err)
	}
}
