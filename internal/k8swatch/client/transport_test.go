package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fenced/fenced/internal/bmc"
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

// counted is a read whose answers the test gives. Each read returns its own number.
type counted struct {
	begun  atomic.Int64
	answer chan error
}

func (c *counted) read(ctx context.Context) (int64, error) {
	n := c.begun.Add(1)
	select {
	case err := <-c.answer:
		return n, err
	case <-ctx.Done():
		return n, ctx.Err()
	}
}

// Who asks while a read is in progress gets the answer of a later one, and shares that one with
// all who asked before it began. // I4, I22
func TestSharedReadBeginsAfterTheQuestion(t *testing.T) {
	t.Parallel()
	s, c := NewSharedReads(), &counted{answer: make(chan error)}
	var g sync.WaitGroup
	g.Go(func() {
		got, err := ReadShared(t.Context(), s, "checks", c.read)
		assert.NoError(t, err)
		assert.EqualValues(t, 1, got)
	})
	until(t, time.Minute, "the first read", func() bool { return c.begun.Load() == 1 })
	for range 20 {
		g.Go(func() {
			got, err := ReadShared(t.Context(), s, "checks", c.read)
			assert.NoError(t, err)
			assert.Greater(t, got, int64(1), "an answer from before the question")
		})
	}
	answered := make(chan struct{})
	go func() {
		g.Wait()
		close(answered)
	}()
	for done := false; !done; {
		select {
		case c.answer <- nil:
		case <-answered:
			done = true
		}
	}
	assert.Less(t, c.begun.Load(), int64(21), "they share")
	assert.Empty(t, s.next)
	until(t, time.Minute, "the end of the last read", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.running) == 0
	})
}

func TestSharedReadsOfOtherKeysDoNotWait(t *testing.T) {
	t.Parallel()
	s, hung := NewSharedReads(), &counted{answer: make(chan error)}
	go func() { _, _ = ReadShared(t.Context(), s, "leader a", hung.read) }()
	until(t, time.Minute, "the read that hangs", func() bool { return hung.begun.Load() == 1 })
	assert.Equal(t, "b", must.Do(ReadShared(t.Context(), s, "leader b", func(context.Context) (string, error) { return "b", nil }))(t))
}

// A read that hangs keeps nobody else from the answer.
func TestSharedReadThatHangsDelaysNobodyForLong(t *testing.T) {
	t.Parallel()
	s, hung := NewSharedReads(), &counted{answer: make(chan error)}
	go func() { _, _ = ReadShared(t.Context(), s, "checks", hung.read) }()
	until(t, time.Minute, "the read that hangs", func() bool { return hung.begun.Load() == 1 })
	got := must.Do(ReadShared(t.Context(), s, "checks", func(context.Context) (int64, error) { return 2, nil }))(t)
	assert.EqualValues(t, 2, got)
	assert.EqualValues(t, 1, hung.begun.Load(), "the first read still hangs")
}

// A read goes on while anybody waits for it, and ends with the last one.
func TestSharedReadEndsWithTheLastWhoWaits(t *testing.T) {
	t.Parallel()
	s, before, c := NewSharedReads(), &counted{answer: make(chan error)}, &counted{answer: make(chan error)}
	s.Patience = time.Hour
	ask := func(c *counted) *sharedRead {
		return s.join("checks", func(ctx context.Context) (any, error) { return c.read(ctx) })
	}
	running := ask(before)
	first, second := ask(c), ask(c)
	require.Same(t, first, second, "both asked before it began")
	assert.NotSame(t, running, first)
	before.answer <- nil
	until(t, time.Minute, "the read", func() bool { return c.begun.Load() == 1 })
	s.leave(first)
	require.NoError(t, first.ctx.Err(), "somebody still waits")
	s.leave(second)
	<-first.done
	require.ErrorIs(t, first.err, context.Canceled)
	s.leave(running)
}

// A read that everybody has given up before it began is not joined: its context has ended.
func TestSharedReadThatWasGivenUpIsNotJoined(t *testing.T) {
	t.Parallel()
	s, c := NewSharedReads(), &counted{answer: make(chan error)}
	s.Patience = time.Millisecond
	given := s.join("checks", func(ctx context.Context) (any, error) { return c.read(ctx) }) // begins at once
	until(t, time.Minute, "the first read", func() bool { return c.begun.Load() == 1 })
	waiting := s.join("checks", func(context.Context) (any, error) { return nil, errors.New("given up") })
	s.leave(waiting)
	got := must.Do(ReadShared(t.Context(), s, "checks", func(context.Context) (int64, error) { return 7, nil }))(t)
	assert.EqualValues(t, 7, got)
	s.leave(given)
}

// Those who ask soon after a read has begun share the next one. Who asks later waits for nobody.
func TestSharedReadsBeginAWhileApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, reads := NewSharedReads(), 0
		ask := func() int {
			n, err := ReadShared(t.Context(), s, "checks", func(context.Context) (int, error) {
				reads++
				return reads, nil
			})
			assert.NoError(t, err)
			return n
		}
		began := time.Now()
		assert.Equal(t, 1, ask())
		var g sync.WaitGroup
		for range 20 {
			g.Go(func() { assert.Equal(t, 2, ask()) })
		}
		g.Wait()
		assert.Equal(t, sharedEvery, time.Since(began))
		time.Sleep(sharedEvery)
		began = time.Now()
		assert.Equal(t, 3, ask())
		assert.Zero(t, time.Since(began), "it is alone")
		time.Sleep(sharedEvery)
		synctest.Wait()
		assert.Empty(t, s.running)
	})
}

func until(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, within, 20*time.Millisecond, what)
}

// leaseAt is a Lease in one version; a zero renewal or duration is not written.
func leaseAt(version, holder string, renewed time.Time, seconds int32) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "leader", UID: "u", ResourceVersion: version}}
	l.Spec.HolderIdentity = &holder
	if !renewed.IsZero() {
		l.Spec.RenewTime = &metav1.MicroTime{Time: renewed}
	}
	if seconds != 0 {
		l.Spec.LeaseDurationSeconds = &seconds
	}
	return l
}

// A Lease that is read for the first time is held as the times in it say, and never for longer than
// the cap. // I22
func TestLeaderLease(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		holder  string
		renewed time.Time
		seconds int32
		held    time.Duration
	}{
		"stepped down":                  {"", now, 15, 0},
		"alive":                         {"capbm-7", now.Add(-14 * time.Second), 15, time.Second},
		"expired":                       {"capbm-7", now.Add(-15 * time.Second), 15, 0},
		"without a time":                {"capbm-7", time.Time{}, 15, 15 * time.Second},
		"without a duration":            {"capbm-7", now, 0, LongestLeadership},
		"a negative duration":           {"capbm-7", now, -1, LongestLeadership},
		"68 years":                      {"nobody", now, 1<<31 - 1, LongestLeadership},
		"renewed in the year 2999":      {"nobody", now.AddDate(973, 0, 0), 15, 15 * time.Second},
		"2999, and for 68 years":        {"nobody", now.AddDate(973, 0, 0), 1<<31 - 1, LongestLeadership},
		"expired before the year 1":     {"nobody", time.Time{}.Add(1), 15, 0},
		"68 years, renewed an hour ago": {"nobody", now.Add(-time.Hour), 1<<31 - 1, 0},
	} {
		clock := NewLeaseClock()
		who, until := clock.HeldUntil(leaseAt("1", c.holder, c.renewed, c.seconds), LongestLeadership, now, now)
		assert.Equal(t, c.held > 0, who != "", name)
		if c.held > 0 {
			assert.Equal(t, now.Add(c.held), until, name)
			who, _ = clock.HeldUntil(leaseAt("1", c.holder, c.renewed, c.seconds), LongestLeadership, now.Add(c.held), now.Add(c.held))
			assert.Empty(t, who, "%s: unchanged for its time", name)
		}
	}
}

// A holder whose clock is hours behind holds its Lease while it renews it. Somebody who writes an old time into it does
// not. // I22
func TestLeaderWithAWrongClockIsAlive(t *testing.T) {
	clock, now := NewLeaseClock(), time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	held := func(version string, renewed, at time.Time) bool {
		who, _ := clock.HeldUntil(leaseAt(version, "capi-1", renewed, 15), LongestLeadership, at, at)
		return who != ""
	}
	behind := func(at time.Time) time.Time { return at.Add(-3 * time.Hour) }
	assert.False(t, held("1", behind(now), now), "the first observation")
	later := now.Add(10 * time.Second)
	assert.True(t, held("2", behind(later), later), "it changed within its duration")
	assert.True(t, held("2", behind(later), later.Add(14*time.Second)))
	assert.False(t, held("2", behind(later), later.Add(15*time.Second)), "and stands still since")
	assert.False(t, held("3", behind(now), later.Add(16*time.Second)), "no leader goes back in time")
	hour := later.Add(time.Hour)
	assert.False(t, held("4", behind(hour), hour), "the version before was read long ago")
}

// The kernel does not go on for minutes to send what nobody acknowledges, and forgets it when the connection or this process ends. A lost
// network cannot be made without root: test/drill has one. // I1
func TestConnectionsDeliverNothingLate(t *testing.T) {
	l := must.Do(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	conn := must.Do(dial(t.Context(), "tcp", l.Addr().String()))(t)
	defer conn.Close()
	require.NoError(t, must.Do(conn.(*net.TCPConn).SyscallConn())(t).Control(func(fd uintptr) {
		assert.Equal(t, 5000, must.Do(unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT))(t))
		linger := must.Do(unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_LINGER))(t)
		assert.Equal(t, 1, linger, "it is on; that it is for no time, the reset in TestUnansweredIsolationIsRevoked shows")
	}))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte("clusters: [{name: c, cluster: {server: https://192.0.2.1}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"), 0o600))
	assert.NotNil(t, must.Do(load(path))(t).Dial, "the clients do not use it")
}

// A process that was frozen between its decision and the write sends nothing: the host may be on again, and another instance may own
// the cluster, with a power lock or a request of its own. // I1, I19, I22
func TestWriteWhoseTimeIsOverIsNotSent(t *testing.T) {
	sent := 0
	transport := limitedTransport{clock: &offset{}, next: roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})}
	ask := func(ctx context.Context, method string) error {
		_, err := transport.RoundTrip(must.Do(http.NewRequestWithContext(ctx, method, "https://192.0.2.1/api/v1/nodes/n-1", nil))(t))
		return err
	}
	over := bmc.Until(t.Context(), func() time.Time { return time.Now().Add(-time.Second) })
	for _, ctx := range []context.Context{Revocable(over), over} {
		require.ErrorIs(t, ask(ctx, http.MethodDelete), context.DeadlineExceeded)
		require.ErrorIs(t, ask(ctx, http.MethodPatch), context.DeadlineExceeded)
		require.ErrorIs(t, ask(ctx, http.MethodPost), context.DeadlineExceeded)
	}
	assert.Zero(t, sent)
	require.NoError(t, ask(bmc.Until(t.Context(), func() time.Time { return time.Now().Add(time.Hour) }), http.MethodDelete))
	require.NoError(t, ask(t.Context(), http.MethodPatch))
	require.NoError(t, ask(over, http.MethodGet))
	assert.Equal(t, 3, sent)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
