package power

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
)

func outletOf(plug, user, password string) bmc.Device {
	return bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc", Endpoint: bmc.Endpoint{Host: "192.0.2.200"},
		Parameters: map[string]string{"plug": plug}, Username: user, Password: bmc.NewSecret(password)}
}

func refusing(k bmc.Kind) error {
	return &bmc.Error{Kind: k, Op: "read power state", Err: errors.New("refused")}
}

func TestAccounts(t *testing.T) {
	mine := outletOf("1", "fence", "old")
	for name, c := range map[string]struct {
		kind  bmc.Kind
		next  bmc.Device
		after func(a *accounts)
		wait  time.Duration
		asked bool
	}{
		"the same device":                      {kind: bmc.KindAuth, next: mine},
		"another outlet, one login":            {kind: bmc.KindAuth, next: outletOf("2", "fence", "old")},
		"another user":                         {kind: bmc.KindAuth, next: outletOf("1", "root", "old"), asked: true},
		"another password":                     {kind: bmc.KindAuth, next: outletOf("1", "fence", "new"), asked: true},
		"later":                                {kind: bmc.KindAuth, next: mine, wait: AccountPause, asked: true},
		"not much later":                       {kind: bmc.KindAuth, next: mine, wait: AccountPause - time.Second},
		"a right that it lacks":                {kind: bmc.KindPrivilege, next: mine},
		"a right that it may have elsewhere":   {kind: bmc.KindPrivilege, next: outletOf("2", "fence", "old"), asked: true},
		"no answer is no refusal":              {kind: bmc.KindUnreachable, next: mine, asked: true},
		"a person mended it":                   {kind: bmc.KindAuth, next: mine, asked: true, after: func(a *accounts) { a.forget(bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{mine}}}}) }},
		"a health check was let in":            {kind: bmc.KindAuth, next: mine, asked: true, after: func(a *accounts) { a.accepted(mine) }},
		"a health check with another password": {kind: bmc.KindAuth, next: mine, after: func(a *accounts) { a.accepted(outletOf("1", "fence", "new")) }},
		"a health check shows no right":        {kind: bmc.KindPrivilege, next: mine, after: func(a *accounts) { a.accepted(mine) }},
		"a person mended what is somewhere else": {kind: bmc.KindAuth, next: mine, after: func(a *accounts) {
			a.forget(bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{{Driver: bmc.DriverIPMI}}}}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccounts(state.RefusedAccounts{}, time.Now())
				pdu := &outlet{err: refusing(c.kind), refusal: refusing(c.kind)}
				open := a.guard(func(bmc.Device) (bmc.Power, error) { return pdu, nil })
				p, err := open(mine)
				require.NoError(t, err)
				_, err = p.Read(t.Context())
				require.Equal(t, c.kind, bmc.KindOf(err))
				if c.after != nil {
					c.after(a)
				}
				time.Sleep(c.wait)
				p, err = open(c.next)
				require.NoError(t, err)
				for _, ask := range []func() error{
					func() error { _, err := p.Read(t.Context()); return err },
					func() error { _, err := p.Send(t.Context(), bmc.CommandOff); return err },
				} {
					before := pdu.reads + len(pdu.sent)
					pdu.err, pdu.refusal = nil, nil
					err := ask()
					assert.Equal(t, c.asked, pdu.reads+len(pdu.sent) > before)
					if !c.asked {
						assert.Equal(t, c.kind, bmc.KindOf(err), "it is told what was said before")
					}
				}
			})
		})
	}
}
