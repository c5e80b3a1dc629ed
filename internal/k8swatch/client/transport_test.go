package client

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
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
		r := must.Do(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h/?"+c.request.Encode(), nil))(t)
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

// A kubeconfig is checked without an API server, and nothing of its content is in an error.
func TestCheckKubeconfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kc")
	// Nothing else is read in the place of what is missing.
	t.Setenv("KUBECONFIG", path)
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.9")
	_, err := CheckKubeconfig(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)

	const head = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
	withProxy := func(url string) string {
		return strings.Replace(head, "{server:", "{proxy-url: '"+url+"', server:", 1) + "users: []\n"
	}
	for _, c := range []struct {
		text, err string
		secrets   []string
	}{
		{text: "", err: "it names no cluster"},
		{text: "Canary-4711", err: "read kubeconfig"},
		{text: head + "users: [{name: u, user: {token: Canary-4711}}]\n"},
		{text: head + "users: [{name: u, user: {client-certificate-data: Q2FuYXJ5, client-key-data: Q2FuYXJ5}}]\n", err: "use kubeconfig"},
		{text: head + "users: [{name: u, user: {tokenFile: none}}]\n", err: "no such file"},
		{text: head + "users: [{name: u, user: {token: *Canary-4711}}]\n", err: "quote a text that begins with *"},
		{text: head + "users: [{name: u, user: Canary-4711}]\n", err: "read kubeconfig"},
		{text: strings.Replace(head, "https://", "https://root:Canary-4711@", 1) + "users: []\n"},
		{text: withProxy("http://root:Canary-4711@192.0.2.2:port"), err: "invalid 'proxy-url' \"http://[redacted]@192.0.2.2:port\""},
		{text: withProxy("socks9://root:Canary-4711@192.0.2.2"), err: "unsupported scheme"},
		{text: head + "users: [{name: u, user: {tokenFile: token}}]\n", secrets: []string{dir + "/token"}},
	} {
		require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("Canary-4711"), 0o600))
		secrets, err := CheckKubeconfig(path)
		if c.err == "" {
			require.NoError(t, err, c.text)
		} else {
			require.ErrorContains(t, err, c.err, c.text)
			require.NotContains(t, err.Error(), "Canary")
		}
		require.Equal(t, c.secrets, secrets, c.text)
	}
}

// What client-go logs by itself, as a warning of the API server, goes to the daemon's log.
func TestLogTo(t *testing.T) {
	var said bytes.Buffer
	LogTo(&said)
	defer klog.ClearLogger()
	rest.WarningLogger{}.HandleWarningHeader(299, "", "this version is deprecated")
	assert.Contains(t, said.String(), "this version is deprecated")
	assert.NotContains(t, said.String(), "time=")
}

func TestTolerationOfTheTaint(t *testing.T) {
	for name, row := range map[string]struct {
		toleration corev1.Toleration
		want       bool
	}{
		"everything":    {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"the key":       {corev1.Toleration{Key: OutOfService.Key, Operator: corev1.TolerationOpExists}, true},
		"the value":     {corev1.Toleration{Key: OutOfService.Key, Value: OutOfService.Value, Effect: OutOfService.Effect}, true},
		"another value": {corev1.Toleration{Key: OutOfService.Key, Value: "x"}, false},
		"other effect":  {corev1.Toleration{Key: OutOfService.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, false},
		"another taint": {corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{row.toleration}}}
			assert.Equal(t, row.want, toleratesOutOfService(p))
			assert.Equal(t, !row.want, IsReleasable(p, remediate.IsolateTaint))
			assert.True(t, IsReleasable(p, remediate.IsolateDelete))
		})
	}
}
