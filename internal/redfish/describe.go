package redfish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/common"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	describeTimeout = 30 * time.Second
	// maxDescribe limits the requests of one description, without login and service
	// root.
	maxDescribe = 22
	maxManagers = 4
	maxNICs     = 16
)

// Describe reports what answers there. Only the system must be readable. What a
// service does not report, or not in time, stays empty.
func (c *Client) Describe(ctx context.Context) (bmc.Description, error) {
	own, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	var d bmc.Description
	err := c.do(own, func(api *gofish.APIClient) error {
		s, err := c.system(own, api)
		if err == nil {
			err = s.repeated
		}
		if err != nil {
			return err
		}
		d = c.survey(own, s)
		return nil
	})
	if err == nil {
		err = ctx.Err() // an incomplete description must not look complete
	}
	if err != nil {
		return bmc.Description{}, c.fail("describe", bmc.SentNo, err)
	}
	return d, nil
}

// survey collects what a service reports of a system.
type survey struct {
	c    *Client
	left int // remaining requests
}

func (c *Client) survey(ctx context.Context, s *system) bmc.Description {
	v := &survey{c: c, left: maxDescribe}
	d := bmc.Description{
		Manufacturer: s.text("Manufacturer"), Serial: s.identity.Serial,
		RestorePolicy: restorePolicy(s.text("PowerRestorePolicy")),
	}
	v.manager(ctx, s, &d)
	if d.Model == "" && d.Firmware != "" {
		d.Model = s.text("Model") // iLO 4 reports its name only in its firmware version
	}
	d.MACs, d.SomeMACs = v.macs(ctx, s.link("EthernetInterfaces"))
	if leaf := c.wire.shown.Load(); leaf != nil {
		d.CertificateUntil = leaf.NotAfter
	}
	return d
}

// get reads one resource, with the timeout of a power reading.
func (v *survey) get(ctx context.Context, uri string) (object, http.Header, error) {
	if v.left == 0 {
		return nil, nil, errTooMany
	}
	v.left--
	ctx, cancel := context.WithTimeout(ctx, v.c.timing.ReadTimeout)
	defer cancel()
	api, err := v.c.connect(ctx, v.c.auth)
	if err != nil {
		return nil, nil, err
	}
	o, resp, err := fetch(api, uri)
	if err != nil {
		return nil, nil, err
	}
	return o, resp.Header, nil
}

func (v *survey) list(ctx context.Context, uri string) ([]string, error) {
	return members(func(uri string) (object, error) {
		o, _, err := v.get(ctx, uri)
		return o, err
	}, uri)
}

// manager adds what the system's BMC reports of itself: its clock, and its model
// and firmware, both or neither. // I5
func (v *survey) manager(ctx context.Context, s *system, d *bmc.Description) {
	uris, err := s.object.object("Links").links("ManagedBy")
	if err != nil || len(uris) == 0 {
		uris = v.onlyManager(ctx)
	}
	for _, uri := range uris[:min(len(uris), maxManagers)] {
		o, header, err := v.get(ctx, uri)
		if err != nil {
			continue
		}
		if kind := o.text("ManagerType"); len(uris) > 1 && kind != "BMC" {
			continue // manages an enclosure or a rack
		}
		d.Model, d.Firmware = o.text("Model"), o.text("FirmwareVersion")
		if d.Manufacturer == "" {
			d.Manufacturer = o.text("Manufacturer")
		}
		d.Clock, d.ClockAt = clock(o, header), time.Now()
		if d.Clock.IsZero() {
			d.ClockAt = time.Time{}
		}
		return
	}
}

// onlyManager returns the manager of a service that has a single one.
func (v *survey) onlyManager(ctx context.Context) []string {
	api, err := v.c.connect(ctx, v.c.auth)
	if err != nil {
		return nil
	}
	root, err := v.c.serviceLinks(api)
	if err != nil || root.managers == "" {
		return nil
	}
	all, err := v.list(ctx, root.managers)
	if err != nil || len(all) != 1 {
		return nil
	}
	return all
}

// clock returns the BMC's time, from its manager or its web server.
func clock(o object, header http.Header) time.Time {
	if at, err := time.Parse(time.RFC3339, o.text("DateTime")); err == nil {
		return at
	}
	at, _ := http.ParseTime(header.Get("Date")) // zero if there is none
	return at
}

// macs returns the addresses of the host's network interfaces that identify it.
// some is true if not all interfaces were read.
func (v *survey) macs(ctx context.Context, uri string) (macs []string, some bool) {
	if uri == "" {
		return nil, false
	}
	uris, err := v.list(ctx, uri)
	if err != nil {
		return nil, true
	}
	some = len(uris) > maxNICs
	for _, uri := range uris[:min(len(uris), maxNICs)] {
		o, _, err := v.get(ctx, uri)
		if err != nil {
			some = true
			continue
		}
		for _, name := range []string{"PermanentMACAddress", "MACAddress"} {
			if mac, ok := bmc.NormalizeMAC(o.text(name)); ok {
				macs = append(macs, mac)
				break
			}
		}
	}
	slices.Sort(macs)
	return slices.Compact(macs), some
}

// restorePolicy translates Redfish's PowerRestorePolicy to that of
// bmc.Description.
func restorePolicy(s string) string {
	switch s {
	case "AlwaysOn":
		return "always-on"
	case "AlwaysOff":
		return "always-off"
	case "LastState":
		return "previous"
	}
	return ""
}

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
