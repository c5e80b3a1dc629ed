package power

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"

	"github.com/fenced/fenced/internal/bmc"
)

func refuses(k bmc.Kind, s bmc.Sent) *outlet {
	return &outlet{refusal: &bmc.Error{Kind: k, Op: "send off", Addr: "fake", Sent: s, Err: errors.New("x")}}
}

// TestLevelSend: a level has accepted when each device has, and what one of them
// may have done is never told as not done. // I2
func TestLevelSend(t *testing.T) {
	took, already := func() *outlet { return &outlet{} }, func() *outlet { return &outlet{receipt: bmc.Receipt{Already: true}} }
	untyped := func() *outlet { return &outlet{refusal: errors.New("untyped")} }
	for _, c := range []struct {
		name    string
		devices []*outlet
		already bool
		kind    bmc.Kind
		sent    bmc.Sent
	}{
		{"both accept", []*outlet{took(), took()}, false, "", 0},
		{"both are there already", []*outlet{already(), already()}, true, "", 0},
		{"one is there already", []*outlet{already(), took()}, false, "", 0},
		{"one accepts, one refuses", []*outlet{took(), refuses(bmc.KindBusy, bmc.SentNo)}, false, bmc.KindBusy, bmc.SentMaybe},
		{"one refuses, one accepts", []*outlet{refuses(bmc.KindBusy, bmc.SentNo), took()}, false, bmc.KindBusy, bmc.SentMaybe},
		{"one accepts, one was told and refuses", []*outlet{took(), refuses(bmc.KindBusy, bmc.SentYes)}, false, bmc.KindBusy, bmc.SentYes},
		{"neither was reached", []*outlet{refuses(bmc.KindUnreachable, bmc.SentNo), refuses(bmc.KindRefused, bmc.SentNo)}, false, bmc.KindUnreachable, bmc.SentNo},
		{"one may have been reached", []*outlet{refuses(bmc.KindUnreachable, bmc.SentNo), refuses(bmc.KindUnreachable, bmc.SentMaybe)}, false, bmc.KindUnreachable, bmc.SentMaybe},
		{"the refused account is told first", []*outlet{refuses(bmc.KindUnreachable, bmc.SentNo), refuses(bmc.KindAuth, bmc.SentNo)}, false, bmc.KindAuth, bmc.SentNo},
		{"an untyped error", []*outlet{untyped(), untyped()}, false, bmc.KindProtocol, bmc.SentMaybe},
	} {
		t.Run(c.name, func(t *testing.T) {
			witness := &outlet{}
			receipt, err := newRack([]*outlet{witness}, c.devices).level(t).Send(t.Context(), bmc.CommandOff)
			assert.Equal(t, c.already, receipt.Already)
			assert.Equal(t, c.kind, bmc.KindOf(err))
			if err != nil {
				e, ok := errors.AsType[*bmc.Error](err)
				require.True(t, ok)
				assert.Equal(t, c.sent, e.Sent)
			}
			for _, o := range c.devices {
				assert.Equal(t, []bmc.Command{bmc.CommandOff}, o.sent, "each is told, whatever another says")
			}
			assert.Empty(t, witness.sent, "a witness is only read")
		})
	}
}

func TestOpenLevel(t *testing.T) {
	board, left, right := says(bmc.On), says(bmc.On), says(bmc.On)
	rack := newRack([]*outlet{board}, []*outlet{left, right})
	p, err := OpenLevel(rack.open, rack.host, 0)
	require.NoError(t, err)
	assert.Same(t, board, p, "one device and no witness is itself")
	for _, n := range []int{-1, 2} {
		_, err = OpenLevel(rack.open, rack.host, n)
		assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
	}

	p, err = OpenLevel(rack.open, rack.host, 1)
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	assert.Equal(t, []int{1, 1, 1}, []int{board.closed, left.closed, right.closed}, "the witness too")

	rack.host.Levels[0].Devices[0].Unusable = errors.New("no password file")
	_, err = OpenLevel(rack.open, rack.host, 0)
	require.EqualError(t, err, "no password file")
	p, err = OpenLevel(rack.open, rack.host, 1)
	require.NoError(t, err, "a witness that cannot be opened stands in nobody's way")
	assert.Equal(t, bmc.On, readState(t, p))

	rack.host.Levels[1].Devices[1].Endpoint.Host = "elsewhere"
	_, err = OpenLevel(rack.open, rack.host, 1)
	assert.Equal(t, bmc.KindTLS, bmc.KindOf(err))
	assert.Equal(t, 2, left.closed, "what was opened before is closed")
}

func readState(t *testing.T, p bmc.Power) bmc.PowerState {
	t.Helper()
	r, err := p.Read(t.Context())
	require.NoError(t, err)
	return r.State
}

// TestLevelLaw: Off is read only when each device was read Off and no witness On;
// a proof follows only from such readings.
func TestLevelLaw(t *testing.T) {
	answer := rapid.Custom(func(t *rapid.T) *outlet {
		if rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
			return fails(rapid.SampledFrom([]bmc.Kind{bmc.KindUnreachable, bmc.KindAuth, bmc.KindTLS}).Draw(t, "kind"))
		}
		o := says(rapid.SampledFrom([]bmc.PowerState{bmc.Off, bmc.Off, bmc.Off, bmc.On, bmc.Unknown}).Draw(t, "state"))
		o.reading.At = noon.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "at")) * time.Second)
		return o
	})
	law.Check(t, func(t *rapid.T) {
		witnesses := rapid.SliceOfN(answer, 0, 2).Draw(t, "witnesses")
		devices := rapid.SliceOfN(answer, 1, 3).Draw(t, "devices")
		levels := [][]*outlet{devices}
		if len(witnesses) > 0 {
			levels = [][]*outlet{witnesses, devices}
		}
		rack := newRack(levels...)
		p, err := OpenLevel(rack.open, rack.host, len(levels)-1)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.Read(t.Context()) // one failure of a witness may be chance
		r, err := p.Read(t.Context())
		off := true
		for _, o := range devices {
			off = off && o.err == nil && o.reading.State == bmc.Off
		}
		for _, o := range witnesses {
			off = off && (o.err != nil || o.reading.State != bmc.On)
		}
		if got := err == nil && r.State == bmc.Off; got != off {
			t.Fatalf("read Off: %v, is off: %v (%+v, %v)", got, off, r, err)
		}
		if err != nil && len(devices) > 1 && (r.State != bmc.Unknown || len(r.Parts) > 0) {
			t.Fatalf("an error with a reading: %+v", r)
		}
	})
}

// TestLevelProofLaw: each device of a proven level read Off twice, the spacing
// apart, and last within the age, however its answers were delayed.
func TestLevelProofLaw(t *testing.T) {
	proven := 0
	law.CheckTested(t, func() bool { return proven > 0 }, func(t *rapid.T) {
		rack := newRack([]*outlet{says(bmc.Off), says(bmc.Off)})
		p, err := OpenLevel(rack.open, rack.host, 0)
		if err != nil {
			t.Fatal(err)
		}
		proof, now := empty(), noon
		var answers [2][]time.Time // of plain Off readings without a break
		for range rapid.IntRange(2, 5).Draw(t, "readings") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 3 * time.Second}).Draw(t, "pause"))
			end := now
			broken := rapid.IntRange(0, 9).Draw(t, "breaks") == 0
			for i := range 2 {
				o := rack.outlets[fmt.Sprintf("l0-d%d", i)]
				o.reading.State = bmc.Off
				o.reading.At = now.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * time.Second)
				if end.Before(o.reading.At) {
					end = o.reading.At
				}
				answers[i] = append(answers[i], o.reading.At)
			}
			if broken {
				rack.outlets["l0-d1"].reading.State = bmc.Unknown
				answers = [2][]time.Time{}
			}
			r, err := p.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			proof, now = proof.Add(r), end
		}
		if !proof.Proven(now) {
			return
		}
		proven++
		for i, at := range answers {
			if n := len(at); n < 2 || at[n-1].Sub(at[0]) < 3*time.Second || now.Sub(at[n-1]) > 5*time.Second {
				t.Fatalf("device %d is not proven off at %v by %v", i, now, at)
			}
		}
	})
}
