package power

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bmc-toolbox/bmclib/v2"
)

// library is bmclib's client as its documentation uses it, open, set, get and
// close, with the one provider that fits. Left with all it has, it would try
// seven of them at once.
type library struct {
	job
	pool   *x509.CertPool
	client *bmclib.Client // open; nil between two acts
}

func newLibrary(j job) (tool, error) {
	l := &library{job: j}
	if j.CA != "" {
		pem, err := os.ReadFile(j.CA)
		if err != nil {
			return nil, err
		}
		l.pool = x509.NewCertPool()
		l.pool.AppendCertsFromPEM(pem)
	}
	return l, nil
}

func (l *library) open(ctx context.Context) error {
	port, host, provider := strconv.Itoa(l.Port), l.Host, "ipmitool"
	options := []bmclib.Option{bmclib.WithIpmitoolPort(port), bmclib.WithIpmitoolCipherSuite("3")}
	if l.System != "" {
		provider, host = "gofish", "https://"+l.Host
		// The simulator refuses If-Match, as some firmware does.
		options = []bmclib.Option{
			bmclib.WithRedfishPort(port), bmclib.WithSecureTLS(l.pool), bmclib.WithRedfishEtagMatchDisabled(true),
		}
	}
	l.client = bmclib.NewClient(host, user, password, options...)
	l.client.Registry.Drivers = l.client.Registry.For(provider)
	return l.client.Open(ctx)
}

func (l *library) close(ctx context.Context) error {
	c := l.client
	l.client = nil
	return c.Close(ctx)
}

func (l *library) warm(context.Context) error { return nil } // its connections are not kept alive

func (l *library) status(ctx context.Context) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	if err := l.read(ctx, "on"); err != nil {
		return err
	}
	return l.close(ctx)
}

func (l *library) off(ctx context.Context) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	if ok, err := l.client.SetPowerState(ctx, "off"); err != nil || !ok {
		return fmt.Errorf("switch off by bmclib: %t: %w", ok, err)
	}
	return l.read(ctx, "off")
}

func (l *library) confirm(ctx context.Context) error {
	if err := l.read(ctx, "off"); err != nil {
		return err
	}
	return l.close(ctx)
}

// read wants a state in either provider's words: "Chassis Power is on", or "On".
func (l *library) read(ctx context.Context, want string) error {
	said, err := l.client.GetPowerState(ctx)
	if err != nil {
		return err
	}
	if words := strings.Fields(strings.ToLower(said)); len(words) == 0 || words[len(words)-1] != want {
		return fmt.Errorf("read power state by bmclib: %q, not %s", said, want)
	}
	return nil
}
