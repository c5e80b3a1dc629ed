package redfish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/stmcginnis/gofish/common"

	"github.com/fenced/fenced/internal/bmc"
)

// certificateNotice is how long before its expiry a certificate is reported.
const certificateNotice = 30 * 24 * time.Hour

// Audit checks how the BMC is trusted and its certificate, in one request without
// credentials.
func (c *Client) Audit(ctx context.Context) ([]bmc.Finding, error) {
	if c.device.Endpoint.Plain {
		return []bmc.Finding{{Code: bmc.FindingCertificateTrust,
			Message: "the BMC is used over plain HTTP, which others on the network can read and forge: use an https address"}}, nil
	}
	var findings []bmc.Finding
	if t := c.device.TLS; t.InsecureSkipVerify && t.PinSHA256 == "" {
		findings = append(findings, bmc.Finding{Code: bmc.FindingCertificateTrust,
			Message: "the BMC's certificate is neither verified nor pinned: set tls.ca or tls.pinSHA256, and remove tls.insecureSkipVerify"})
	}
	leaf, err := c.certificate(ctx)
	if err != nil {
		return nil, c.fail("audit", bmc.SentNo, err)
	}
	if text := expiry(leaf, time.Now()); text != "" {
		findings = append(findings, bmc.Finding{Code: bmc.FindingCertificateExpired, Message: text})
	}
	return findings, nil
}

// certificate returns the BMC's certificate, even if it was rejected as expired.
func (c *Client) certificate(ctx context.Context) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	api, err := c.connect(ctx, auth{})
	if err != nil {
		return nil, err
	}
	resp, err := api.Get(common.DefaultServiceRoot)
	if err == nil {
		resp.Body.Close()
	}
	if err == nil || statusOf(err) != 0 { // every answer came over TLS
		return c.wire.shown.Load(), nil
	}
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	if refused, is := errors.AsType[*tls.CertificateVerificationError](err); is && ok && invalid.Reason == x509.Expired && len(refused.UnverifiedCertificates) > 0 {
		return refused.UnverifiedCertificates[0], nil
	}
	return nil, err
}

// expiry returns what is wrong with the certificate's dates at now; "" if nothing
// is.
func expiry(leaf *x509.Certificate, now time.Time) string {
	until := leaf.NotAfter.UTC().Format(time.DateOnly)
	switch {
	case now.Before(leaf.NotBefore):
		return fmt.Sprintf("the BMC's certificate is not valid before %s: set the BMC's clock or renew it", leaf.NotBefore.UTC().Format(time.DateOnly))
	case now.After(leaf.NotAfter):
		return fmt.Sprintf("the BMC's certificate expired on %s: renew it", until)
	case now.Add(certificateNotice).After(leaf.NotAfter):
		return fmt.Sprintf("the BMC's certificate expires on %s: renew it", until)
	}
	return ""
}
