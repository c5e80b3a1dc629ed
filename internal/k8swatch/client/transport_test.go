package client

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// roundTrip is a transport that answers by itself.
type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// An object is read up to a bound that no real one reaches; a list's is larger.
func TestAnswersAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		request url.Values
		want    int64
	}{
		"object":       {nil, MaxObject},
		"list":         {url.Values{"limit": {"500"}}, MaxBody},
		"failed watch": {url.Values{"watch": {"true"}}, MaxObject},
	} {
		body := strings.NewReader(strings.Repeat("x", int(c.want)+1))
		g := limitedTransport{next: roundTrip(func(r *http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusForbidden, Body: io.NopCloser(body), Request: r}
		}), clock: &offset{}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h/?"+c.request.Encode(), nil)
		require.NoError(t, err)
		resp, err := g.RoundTrip(r)
		require.NoError(t, err, name)
		n, err := io.Copy(io.Discard, resp.Body)
		assert.ErrorIs(t, err, ErrBodyTooLarge, name)
		assert.LessOrEqual(t, n, c.want, name)
		require.NoError(t, resp.Body.Close())
	}
}

// The limit is about one value, however many there are, and however they are cut.
func TestFramesAreBounded(t *testing.T) {
	long := strings.Repeat("x", MaxObject/3)
	for name, c := range map[string]struct {
		one   string
		times int
		want  error
	}{
		"many values":                   {`{"a":"` + long + `"}` + "\n", 10, nil},
		"brackets and quotes in texts":  {`{"}]":"\"}` + long + `\\","b":["]"]}`, 10, nil},
		"lists":                         {`[[{"a":[]}],"` + long + `"]`, 10, nil},
		"one value":                     {`{"a":["` + long + `"],"b":`, 4, ErrBodyTooLarge},
		"closing brackets in a text":    {`{"a":"` + strings.Repeat("}", MaxObject), 2, ErrBodyTooLarge},
		"a text without an end":         {`{"a":"` + strings.Repeat(`\"}`, MaxObject), 1, ErrBodyTooLarge},
		"white space between values":    {"{}" + strings.Repeat("\n", MaxObject+1), 1, ErrBodyTooLarge},
		"white space in a value":        {"{" + strings.Repeat("\n", MaxObject), 1, ErrBodyTooLarge},
		"a number":                      {strings.Repeat("1", MaxObject+1), 1, ErrBodyTooLarge},
		"brackets that close only half": {strings.Repeat("[[]", MaxObject), 1, ErrBodyTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			whole := strings.NewReader(strings.Repeat(c.one, c.times))
			read, err := io.Copy(io.Discard, &boundedFrames{ReadCloser: io.NopCloser(iotest.HalfReader(whole))})
			assert.Equal(t, c.want, err)
			if c.want == nil {
				assert.Equal(t, int64(len(c.one)*c.times), read)
			}
		})
	}
}
