package bmc

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// empty is the proof of the product: 3 s apart, 5 s old at most.
func empty() Proof { return Proof{Spacing: 3 * time.Second, MaxAge: 5 * time.Second} }

func at(d time.Duration, state PowerState) Reading { return Reading{State: state, At: noon.Add(d)} }

func TestProof(t *testing.T) {
	const s = time.Second
	session := func(r Reading) Reading { r.Session = 2; return r }
	named := func(r Reading) Reading { r.Identity.UUID = "other"; return r }
	slow := func(r Reading, took time.Duration) Reading { r.Took = took; return r }
	fault := func(r Reading) Reading { r.Fault = "interlock"; return r }
	for _, c := range []struct {
		name     string
		readings []Reading
		now      time.Duration
		want     bool
	}{
		{"no reading", nil, 0, false},
		{"one Off", []Reading{at(0, Off)}, 0, false},
		{"one Off, long ago", []Reading{at(0, Off)}, 4 * s, false},
		{"exactly 3 s apart", []Reading{at(0, Off), at(3*s, Off)}, 3 * s, true},
		{"a nanosecond less", []Reading{at(0, Off), at(3*s-1, Off)}, 3 * s, false},
		{"the second asked too early, and answered late", []Reading{at(0, Off), slow(at(3*s, Off), 1)}, 3 * s, false},
		{"the second asked in time, and answered late", []Reading{at(0, Off), slow(at(5*s, Off), 2*s)}, 5 * s, true},
		{"the first answered late", []Reading{slow(at(2*s, Off), 2*s), at(5*s, Off)}, 5 * s, true},
		{"many reads, the ends 3 s apart", []Reading{at(0, Off), at(s, Off), at(2*s, Off), at(3*s, Off)}, 3 * s, true},
		{"the newest exactly 5 s old", []Reading{at(0, Off), at(3*s, Off)}, 8 * s, true},
		{"a nanosecond older", []Reading{at(0, Off), at(3*s, Off)}, 8*s + 1, false},
		{"a newer read makes it young again", []Reading{at(0, Off), at(3*s, Off), at(9*s, Off)}, 9 * s, true},
		{"from the future", []Reading{at(0, Off), at(3*s, Off)}, 3*s - 1, false},
		{"On between", []Reading{at(0, Off), at(s, On), at(3*s, Off)}, 3 * s, false},
		{"Unknown between", []Reading{at(0, Off), at(s, Unknown), at(3*s, Off)}, 3 * s, false},
		{"On at the end", []Reading{at(0, Off), at(3*s, Off), at(4*s, On)}, 4 * s, false},
		{"proven again after On", []Reading{at(0, On), at(s, Off), at(4*s, Off)}, 4 * s, true},
		{"another session", []Reading{at(0, Off), session(at(3*s, Off))}, 3 * s, false},
		{"proven on the other session", []Reading{at(0, Off), session(at(3*s, Off)), session(at(6*s, Off))}, 6 * s, true},
		{"another identity", []Reading{at(0, Off), named(at(3*s, Off))}, 3 * s, false},
		{"a fault", []Reading{at(0, Off), fault(at(3*s, Off))}, 3 * s, false},
		{"a fault between", []Reading{at(0, Off), fault(at(s, Off)), at(3*s, Off)}, 3 * s, false},
		{"a clock that ran backwards", []Reading{at(10*s, Off), at(0, Off), at(2*s, Off)}, 2 * s, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := empty()
			for _, r := range c.readings {
				p = p.Add(r)
			}
			assert.Equal(t, c.want, p.Proven(noon.Add(c.now)))
		})
	}
}

func TestProofWithoutSpacingProvesNothing(t *testing.T) {
	p := Proof{MaxAge: time.Hour}.Add(at(0, Off)).Add(at(time.Second, Off))
	assert.False(t, p.Proven(noon.Add(time.Second)), "a spacing that was forgotten must not make one read a proof")
}

func TestProofTells(t *testing.T) {
	p := empty()
	assert.True(t, p.Since().IsZero() && p.Until().IsZero())
	assert.Equal(t, noon, p.NextRead(noon), "while nothing was read: now")
	p = p.Add(at(0, Off)).Add(at(time.Second, Off))
	assert.Equal(t, noon, p.Since())
	assert.Equal(t, noon.Add(time.Second+5*time.Second), p.Until())
	assert.Equal(t, noon.Add(3*time.Second), p.NextRead(noon.Add(time.Second)), "the end of the spacing")
	assert.Equal(t, empty(), p.Reset())
	assert.Equal(t, empty(), p.Add(at(2*time.Second, On)), "On leaves nothing behind")
}

// TestProofLaw says what a proof is, in another way than Add does: some suffix
// of the readings is all plain Off of one session and identity in order of
// time, spans the spacing, and ends within the age.
func TestProofLaw(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		var rs []Reading
		clock := noon
		for range rapid.IntRange(0, 12).Draw(t, "readings") {
			clock = clock.Add(rapid.SampledFrom([]time.Duration{-time.Second, 0, time.Second, 2 * time.Second, 3 * time.Second}).Draw(t, "step"))
			rs = append(rs, Reading{
				State:    rapid.SampledFrom([]PowerState{Off, Off, Off, Off, Off, On, Unknown}).Draw(t, "state"),
				At:       clock,
				Session:  rapid.SampledFrom([]uint64{1, 1, 1, 1, 2}).Draw(t, "session"),
				Identity: Identity{UUID: rapid.SampledFrom([]string{"a", "a", "a", "a", "b"}).Draw(t, "identity")},
				Fault:    rapid.SampledFrom([]string{"", "", "", "", "", "interlock"}).Draw(t, "fault"),
			})
		}
		now := clock.Add(rapid.SampledFrom([]time.Duration{-1, 0, 5 * time.Second, 5*time.Second + 1}).Draw(t, "age"))
		p := empty()
		for _, r := range rs {
			p = p.Add(r)
		}
		if got, want := p.Proven(now), provenBySuffix(rs, now); got != want {
			t.Fatalf("proven %v, want %v: %+v at %v", got, want, rs, now)
		}
	})
}

func provenBySuffix(rs []Reading, now time.Time) bool {
	if len(rs) == 0 {
		return false
	}
	last := rs[len(rs)-1]
	if last.At.After(now) || now.Sub(last.At) > 5*time.Second {
		return false
	}
	for i := len(rs) - 1; i >= 0; i-- {
		r := rs[i]
		if r.State != Off || r.Fault != "" || r.Session != last.Session || r.Identity != last.Identity {
			return false
		}
		if i+1 < len(rs) && r.At.After(rs[i+1].At) {
			return false
		}
		if last.At.Sub(r.At) >= 3*time.Second {
			return true
		}
	}
	return false
}

// An Off counts as accepted in the session that took it, and in no other. // I1
func TestAcceptance(t *testing.T) {
	in := func(session uint64) Reading { return Reading{State: Off, At: noon, Session: session} }
	var a Acceptance
	assert.False(t, a.AddCommand(CommandOff, nil).OffAccepted(), "nothing was read before: nobody knows in which session")
	a = a.AddReading(in(7))
	assert.False(t, a.OffAccepted())
	assert.False(t, a.AddCommand(CommandOff, assert.AnError).OffAccepted())
	assert.False(t, a.AddCommand(CommandOn, nil).OffAccepted())
	a = a.AddCommand(CommandOff, nil)
	assert.True(t, a.OffAccepted())
	assert.True(t, a.AddReading(in(7)).OffAccepted())
	assert.False(t, a.AddCommand(CommandOn, nil).OffAccepted(), "the last command counts")
	a = a.AddReading(in(8))
	assert.False(t, a.OffAccepted(), "the BMC restarted")
	assert.False(t, a.AddReading(in(7)).OffAccepted(), "and does not take it back")
	assert.True(t, a.AddCommand(CommandOff, nil).OffAccepted(), "sent again")
}

// I1: of a name that is there twice, neither value counts.
func TestCheckNames(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, maxNesting/2)
	for body, repeated := range map[string]string{
		`{"PowerState":"On","PowerState":"Off"}`:                       "PowerState",
		`{"PowerState":"Off","PowerState":"Off"}`:                      "PowerState",
		`{"PowerState":"On","powerstate":"Off"}`:                       "powerstate",
		`{"PowerState":"On","Power\u0053tate":"Off"}`:                  "PowerState",
		`{"PowerState":"On","Power` + "\u017f" + `tate":"Off"}`:        "Power" + "\u017f" + "tate",
		`{"s` + "\u212a" + `u":"a","SKU":"b"}`:                         "SKU",
		`{"a":{"b":[1,{"c":1,"d":{},"c":2}]}}`:                         "c",
		`[{"UUID":"a"},{"UUID":"a","uuid":"b"}]`:                       "uuid",
		`{"Actions":{},"ACTIONS":{}}`:                                  "ACTIONS",
		`{"power_status":1,"Power_Status":0}`:                          "Power_Status",
		`{"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":1}],"x":"x"}`:      "",
		`{"Links":{"ManagedBy":[]},"links":{"self":{"href":"/"}}}`:     "",
		`{"PowerState":"On","Power":"PowerState","a":["UUID","UUID"]}`: "",
		`{"n":4e444,"s":"\ud800","e":{},"f":[]}` + "\n\x00":            "",
		`"text"`: "", `null`: "", `7`: "", ` [] `: "",
	} {
		err := CheckNames([]byte(body))
		if repeated == "" {
			require.NoError(t, err, body)
			continue
		}
		e, ok := errors.AsType[*RepeatedError](err)
		require.True(t, ok, body)
		assert.Equal(t, repeated, e.Name, body)
	}
	for _, body := range []string{``, `{`, `{"a":1`, `{"a" 1}`, `{} {}`, `{"PowerState":"On"}{"PowerState":"Off"}`, `[1]x`, `<html>`, deep + `{`} {
		err := CheckNames([]byte(body))
		require.Error(t, err, body)
		_, repeats := errors.AsType[*RepeatedError](err)
		assert.False(t, repeats, body)
	}
	assert.NoError(t, CheckNames([]byte(deep+strings.Repeat(`]}`, maxNesting/2))))
	long := strings.Repeat("x", 4096)
	assert.Less(t, len(CheckNames([]byte(`{"`+long+`":1,"`+long+`":2}`)).Error()), 100, "an error is short")
}

// FuzzCheckNames: what passes has one meaning. Whatever is read from it by an exact
// name or by encoding/json's own rules, it is the same value.
func FuzzCheckNames(f *testing.F) {
	for _, s := range []string{
		`{"PowerState":"On","PowerState":"Off"}`, `{"PowerState":"On","powerstate":"Off"}`, `{"a":{"b":1,"b":2}}`, `[{},{}]`, `{"PowerState":"Off"} x`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if CheckNames(b) != nil {
			return
		}
		b = []byte(strings.TrimRight(string(b), "\x00 \t\r\n"))
		require.True(t, json.Valid(b))
		var exact map[string]json.RawMessage
		var field struct{ PowerState json.RawMessage }
		if json.Unmarshal(b, &exact) != nil || json.Unmarshal(b, &field) != nil {
			return // no object
		}
		if word, ok := exact["PowerState"]; ok {
			assert.Equal(t, string(word), string(field.PowerState))
		}
	})
}

func TestPrintable(t *testing.T) {
	assert.Equal(t, "a b", Printable("a\nb", 10))
	assert.Equal(t, "ä", Printable("ää", 3), "no half character")
	assert.Len(t, Printable(strings.Repeat("x", 1000), 300), 300)
}

// A name that is not written as fold writes it would never be found.
func TestReadNamesAreFolded(t *testing.T) {
	for name := range readNames {
		assert.Equal(t, fold(name), name)
	}
}

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

// hidden holds a Secret where fmt cannot ask its methods.
type hidden struct{ password Secret }

func TestSecretNeverPrints(t *testing.T) { // I25
	s := NewSecret(canary)
	host := Host{Name: "h", Levels: []Level{{Devices: []Device{{Password: s}}}}}
	for _, v := range []any{s, &s, []Secret{s}, map[string]Secret{"k": s}, map[Secret]int{s: 1}, host, &host, hidden{s}, &hidden{s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%o", "%p", "%20s", "%w"} {
			text := fmt.Sprintf(verb, v)
			assert.NotContains(t, text, canary, "%s of %T", verb, v)
			assert.NotContains(t, text, fmt.Sprintf("%x", canary), "%s of %T", verb, v)
		}
	}
	assert.Equal(t, "[redacted] [redacted]", fmt.Sprintf("%v %d", s, s))
	assert.Equal(t, "[redacted]", s.String())
}

func TestSecretNeverMarshals(t *testing.T) { // I25
	v := struct {
		Password Secret `json:"password" yaml:"password"`
		Host     Host   `json:"host" yaml:"host"`
	}{NewSecret(canary), Host{Levels: []Level{{Devices: []Device{{Password: NewSecret(canary)}}}}}}
	j := must.Do(json.Marshal(v))(t)
	y := must.Do(yaml.Marshal(v))(t)
	for _, text := range [][]byte{j, y} {
		assert.NotContains(t, string(text), canary)
		assert.Contains(t, string(text), "[redacted]")
	}
}

func TestSecretNeverLogs(t *testing.T) { // I25
	var out bytes.Buffer
	for _, enc := range []zapcore.Encoder{
		zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()),
	} {
		log := zap.New(zapcore.NewCore(enc, zapcore.AddSync(&out), zap.DebugLevel))
		s := NewSecret(canary)
		log.Info("m", zap.Any("a", s), zap.Stringer("b", s), zap.Any("c", Device{Password: s}), zap.Any("d", hidden{s}), zap.Reflect("e", &s))
		log.Sugar().Infof("%v %+v", s, hidden{s})
		log.Sugar().Infow("m", "k", s)
	}
	assert.NotContains(t, out.String(), canary)
	assert.Contains(t, out.String(), "[redacted]")
}

func TestSecretReveals(t *testing.T) {
	assert.Equal(t, canary, NewSecret(canary).Reveal())
	assert.False(t, NewSecret(canary).Empty())
	assert.True(t, NewSecret("").Empty())
	assert.True(t, Secret{}.Empty())
	assert.Empty(t, Secret{}.Reveal())
}

// The end of what is done moves with each renewal, the sooner of two counts, and none counts for what outlives it: a witness that began
// during an action goes on to read. // I1, I19
func TestTimeIsOverAtAnEndThatMoves(t *testing.T) {
	claim, proof := noon.Add(10*time.Second), noon.Add(5*time.Second)
	outer, endAction := context.WithCancel(t.Context())
	ctx := Until(Until(outer, func() time.Time { return claim }), func() time.Time { return proof })
	over := func(ctx context.Context, at time.Time) bool {
		return errors.Is(Over(ctx, at), context.DeadlineExceeded)
	}
	assert.False(t, over(ctx, proof.Add(-1)))
	assert.True(t, over(ctx, proof))
	proof = noon.Add(time.Hour)
	assert.False(t, over(ctx, claim.Add(-1)))
	assert.True(t, over(ctx, claim))
	witness := context.WithoutCancel(ctx)
	assert.True(t, over(witness, claim))
	endAction()
	assert.NoError(t, Over(witness, claim))
	assert.ErrorIs(t, Over(ctx, noon), context.Canceled)
}
