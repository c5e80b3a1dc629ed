package power

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/internal/redfish"
)

// timing is that of fenced's configuration when it says nothing.
var timing = bmc.Timing{ReadTimeout: 5 * time.Second, SendTimeout: 10 * time.Second}

// own is fenced's client of the BMC's protocol.
type own struct {
	device bmc.Device
	keep   bool      // the session, for the next act
	power  bmc.Power // nil while there is none
	proof  bmc.Proof
}

func newOwn(j job) (tool, error) { return &own{device: j.device(), keep: j.Warm}, nil }

// device is the BMC of a job as fenced's inventory would have it. Suite 3 is all
// that ipmi_sim has, so that every contestant is told so.
func (j job) device() bmc.Device {
	d := bmc.Device{
		Driver: bmc.DriverIPMI, Username: user, Password: bmc.NewSecret(password), CipherSuites: []int{3},
		Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: j.Host, Port: j.Port, Privilege: "OPERATOR"},
	}
	if j.System != "" {
		d.Driver, d.CipherSuites, d.TLS = bmc.DriverRedfish, nil, bmc.TLS{CA: j.CA}
		d.Endpoint = bmc.Endpoint{Protocol: bmc.ProtocolRedfish, Host: j.Host, Port: j.Port, System: j.System}
	}
	return d
}

// open is a bmc.Opener of the two drivers of our own.
func open(d bmc.Device) (bmc.Power, error) {
	if d.Driver == bmc.DriverRedfish {
		return redfish.New(d, timing)
	}
	return ipmi.New(d, timing), nil
}

func (o *own) client() (p bmc.Power, err error) {
	if o.power == nil {
		o.power, err = open(o.device)
	}
	return o.power, err
}

// end closes the session of an act that does not keep it.
func (o *own) end(ctx context.Context) error {
	if o.keep {
		return nil
	}
	p := o.power
	o.power = nil
	return p.Close(ctx)
}

// warm opens the session and has it raised to the privilege that an off needs.
func (o *own) warm(ctx context.Context) error {
	p, err := o.client()
	if err != nil {
		return err
	}
	_, err = p.Send(ctx, bmc.CommandOn)
	return err
}

func (o *own) status(ctx context.Context) error {
	if _, err := o.read(ctx, bmc.On); err != nil {
		return err
	}
	return o.end(ctx)
}

func (o *own) read(ctx context.Context, want bmc.PowerState) (bmc.Reading, error) {
	p, err := o.client()
	if err != nil {
		return bmc.Reading{}, err
	}
	r, err := p.Read(ctx)
	if err == nil && r.State != want {
		err = fmt.Errorf("the host reads %s, not %s", r.State, want)
	}
	return r, err
}

func (o *own) off(ctx context.Context) error {
	p, err := o.client()
	if err != nil {
		return err
	}
	if _, err := p.Send(ctx, bmc.CommandOff); err != nil {
		return err
	}
	r, err := o.read(ctx, bmc.Off)
	o.proof = bmc.Proof{Spacing: spacing, MaxAge: maxAge}.Add(r)
	return err
}

// confirm is an error unless fenced itself would call the host off.
func (o *own) confirm(ctx context.Context) error {
	r, err := o.read(ctx, bmc.Off)
	if err != nil {
		return err
	}
	if !o.proof.Add(r).Proven(time.Now()) {
		return fmt.Errorf("two Off reads, %s apart, are no proof", r.At.Sub(o.proof.Since()))
	}
	return o.end(ctx)
}
