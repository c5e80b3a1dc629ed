package k8swatch

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/test/wall"
)

func TestSkewIsOnlyWhatIsCertain(t *testing.T) {
	sent := time.Date(2026, 1, 1, 0, 0, 10, 900e6, time.UTC)
	answered := sent.Add(300 * time.Millisecond)
	second := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	for name, c := range map[string]struct {
		date time.Time
		want time.Duration
	}{
		"same second as sent":    {second(10), 0},
		"same second as answer":  {second(11), 0},
		"ahead":                  {second(20), 8800 * time.Millisecond},
		"behind":                 {second(2), -7900 * time.Millisecond},
		"a second behind, maybe": {second(9), -900 * time.Millisecond},
	} {
		assert.Equal(t, c.want, skewOf(c.date, sent, answered), name)
	}
}

// Nothing is known of a clock that no answer has told. What this host's clock is set by
// shows before the next answer does. // I16
func TestClockThatIsSetShowsAtOnce(t *testing.T) {
	var o offset
	now := time.Now()
	_, known := o.current(now)
	assert.False(t, known)
	o.measure(&http.Response{Header: http.Header{"Date": {"no time"}}}, now, now)
	_, known = o.current(now)
	assert.False(t, known)

	date := now.Add(-time.Minute).UTC().Format(http.TimeFormat)
	o.measure(&http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{"Date": {date}}}, now, now)
	_, known = o.current(now)
	assert.False(t, known, "a proxy's page")
	o.measure(&http.Response{Header: http.Header{"Date": {date}}}, now, now)
	behind, known := o.current(now.Add(time.Hour))
	assert.True(t, known)
	assert.InDelta(t, -time.Minute, behind, float64(2*time.Second))
	for _, by := range []time.Duration{time.Hour, -2 * time.Hour} {
		skew, _ := o.current(wall.Set(now.Add(time.Minute), by))
		assert.Equal(t, behind-by, skew)
	}
}

// The look on which an Off is decided compares the clocks, too. // I16
func TestLookSeesAClockThatWasSet(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-10*time.Minute).UTC().Format(http.TimeFormat))
		status(w, http.StatusNotFound, "NotFound", "n")
	})
	assert.False(t, c.View().SkewKnown)
	c.Look(t.Context(), toDelete, nil)
	v := c.View()
	assert.True(t, v.SkewKnown)
	assert.InDelta(t, -10*time.Minute, v.Skew, float64(2*time.Second))
}
