package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// unpack are the members of an archive, by name.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip := must.Do(gzip.NewReader(bytes.NewReader(archive)))(t)
	all, members := map[string]string{}, tar.NewReader(zip)
	for {
		h, err := members.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		text := must.Do(io.ReadAll(members))(t)
		assert.Equal(t, int64(0o600), h.Mode, h.Name)
		all[strings.TrimPrefix(h.Name, root)] = string(text)
	}
}

// A part, and all parts together, are as large as they may be, and the MANIFEST says what is cut.
func TestPartsAreCut(t *testing.T) {
	var out bytes.Buffer
	b := newBundle(&out, time.Now())
	require.Equal(t, maxBundle, b.left)
	require.Equal(t, maxPart, b.part)
	const part = 64 << 10 // more would only take longer
	b.part, b.left = part, 2*part
	large := bytes.Repeat([]byte("x"), part+1)
	b.add("large", large, "")
	b.add("grows", append(large[:part-4:part-4], "\x1b\x1b\n"...), "") // as what is escaped does
	b.add("none-left", large, "older ones are left out")
	b.missing("secret", errors.New("password=Canary\nwas refused"))
	require.NoError(t, b.close("head"))
	all := unpack(t, out.Bytes())
	assert.Len(t, all["large"], part)
	assert.Len(t, all["grows"], part)
	assert.Empty(t, all["none-left"])
	for _, want := range []string{
		"head\n", "65536  large: cut: 65537 bytes are too large\n", "65536  grows: cut: 65535 bytes are too large\n",
		"0  none-left: older ones are left out; cut: 65537 bytes are too large\n",
		"-  secret: not read: password=[redacted] was refused\n",
	} {
		assert.Contains(t, all["MANIFEST"], want)
	}
}

// What hangs is given up, and named.
func TestWhatHangsIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan bool)
		_, err := within(t.Context(), func(context.Context) (int, error) { <-never; return 0, nil })
		assert.ErrorContains(t, err, "it took longer than 20s")
		close(never)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err = within(ctx, func(ctx context.Context) (int, error) { <-ctx.Done(); time.Sleep(time.Minute); return 0, nil })
		assert.Error(t, err)
		assert.Equal(t, time.Second, time.Since(began), "the time of the whole bundle")
		time.Sleep(time.Hour) // until the second one has ended, too
	})
}

// A journal keeps its newest lines, and a program its reason.
func TestOutput(t *testing.T) {
	text := must.Do(output(t.Context(), "sh", "-c", `head -c 30000000 /dev/zero | tr '\0' 'x'; echo; head -c 1000 /dev/zero | tr '\0' 'y'; echo; echo newest`))(t)
	assert.Equal(t, strings.Repeat("y", 1000)+"\nnewest\n", string(text), "it begins with a whole line")
	_, err := output(t.Context(), "sh", "-c", "echo token=Canary >&2; exit 3")
	assert.EqualError(t, err, "run sh: exit status 3: token=[redacted]")
	_, err = output(t.Context(), filepath.Join(t.TempDir(), "none"))
	assert.ErrorContains(t, err, "no such file")
}

// Another program at the port of the metrics gives what it likes, but no more than that.
func TestScrape(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			_, _ = w.Write(bytes.Repeat([]byte("y"), 3*maxPart)) // the reader goes before the end
		case "/elsewhere":
			http.Redirect(w, r, "/metrics", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	text := must.Do(scrape(t.Context(), srv.URL+"/metrics"))(t)
	assert.Len(t, text, maxPart+1)
	_, err := scrape(t.Context(), srv.URL+"/elsewhere")
	assert.ErrorContains(t, err, "HTTP status 302")
}

// Open runs come first, then what is refused; each target once, and only those of the cluster.
func TestTroubled(t *testing.T) {
	s := wire.Status{
		Runs:    []wire.RunStatus{{Cluster: "prod", Node: "run"}, {Cluster: "prod", Machine: "ns/run"}},
		Blocked: []wire.Blocked{{Cluster: "prod", Node: "blocked"}, {Cluster: "prod", Node: "run"}, {Cluster: "other", Node: "run"}},
		Clusters: []wire.ClusterStatus{{Name: "prod", Deviating: []wire.TargetStatus{
			{Node: "deviates", Machine: "ns/deviates"}, {Node: "blocked"}, {Machine: "ns/run"},
		}}},
	}
	assert.Equal(t, []target{{"prod", "run"}, {"prod", "ns/run"}, {"prod", "blocked"}, {"other", "run"}, {"prod", "deviates"}}, troubled(s, ""))
	assert.Equal(t, []target{{"other", "run"}}, troubled(s, "other"))
}

// Whoever gives up gets an error, not half of a bundle.
func TestCollectEndsWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Collect(ctx, Options{Client: api.New("none"), Config: "none", Daemon: "none"}, io.Discard)
	assert.ErrorIs(t, err, context.Canceled)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// A bundle that cannot be written is an error.
func TestFullDisk(t *testing.T) {
	b := newBundle(full{}, time.Now())
	b.add("large", bytes.Repeat([]byte("abc\n"), 1000), "")
	assert.ErrorContains(t, b.close("head"), "no space left")
}

// TestDocumentedLimits: the page for operators has the limits of the code.
func TestDocumentedLimits(t *testing.T) {
	page := must.Do(os.ReadFile("../../docs/troubleshooting.md"))(t)
	for _, want := range []string{
		fmt.Sprintf("the newest %d runs", maxRuns), fmt.Sprintf("at most %d nodes", maxTargets), fmt.Sprintf("newest %d lines", journalLines),
		fmt.Sprintf("at most %d MiB", maxBundle>>20), fmt.Sprintf("at most %.0f minutes", wholeTime.Minutes()),
	} {
		assert.Contains(t, string(page), want)
	}
}

// A name from elsewhere leads out of no directory.
func TestFileName(t *testing.T) {
	for name, want := range map[string]string{
		"prod/worker-3.example.com.json": "prod/worker-3.example.com.json", "../../etc/passwd": "_/_/etc/passwd", "a\x1b b\n": "a__b_",
	} {
		assert.Equal(t, want, fileName(name))
	}
}

// Files that hold secrets are described, not read.
func TestAccess(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), []byte("Canary"), 0o640))
	text := string(access([]string{filepath.Join(dir, "key"), filepath.Join(dir, "none")}))
	assert.Regexp(t, `(?m)^-rw-r----- uid=\d+ gid=\d+ \S+Z \S+/key$`, text)
	assert.Regexp(t, `(?m)^lstat \S+/none: no such file or directory$`, text)
	assert.NotContains(t, text, "Canary")
}

// Whatever form a secret has that another program wrote, it is hidden; what is around it stays. // I25
func TestScrub(t *testing.T) {
	const canary = "Canary4711"
	for _, text := range []string{
		"login to https://root:" + canary + "@192.0.2.1/redfish failed",
		"login to https://root:" + canary + "/%40@x@192.0.2.1/redfish failed",
		"password=" + canary + " failed", "Password: \"" + canary + " " + canary + "\" failed", "passwd='" + canary + "' failed",
		"BMC_PASSWORD=" + canary + ", failed", "bearerToken: " + canary + "; failed", "api_key = " + canary + "\nfailed",
		"Authorization: Basic " + canary + "\nfailed", "authorization: Digest username=x, response=" + canary + "\nfailed", "X-Auth-Token: " + canary + "\nfailed",
		"sent Bearer " + canary + "aB1= failed", "sent eyJhbGciOiJS." + canary + "." + canary + " failed",
		"-----BEGIN EC PRIVATE KEY-----\n" + canary + "\n-----END EC PRIVATE KEY-----\nfailed",
		"failed -----BEGIN PRIVATE KEY-----\n" + canary,
		"client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo" + canary + " failed",
		`{"password":"` + canary + `","x":"failed"}`, `{"token":4711` + `,"x":"failed"}`, `{"m":"-----BEGIN PRIVATE KEY-----\n` + canary + `\n-----END PRIVATE KEY-----","x":"failed"}`,
		`{"m":"it said {\"password\":\"` + canary + `\",\"x\":1}, and failed"}`, `{"m":"{\"password\": \"a\\\"` + canary + `\"} failed"}`, `{"m":"{\"token\":4711, failed}"}`,
		`{"m":"{\"n\":\"{\\\"token\\\":\\\"` + canary + `\\\"}\"} failed"}`, `{"m":"Authorization: Digest username=\"x\", response=\"` + canary + `\"","x":"failed"}`,
		"Authorization: Digest username=\"x\", response=\"" + canary + "\"\nfailed", `{"m":"{\"Authorization\":\"Basic ` + canary + `\"}","x":"failed"}`,
		"failed: {\"password\":\"" + canary, "failed: {\\\"password\\\":\\\"" + canary, "failed: password='" + canary,
		"ran fence_x --password " + canary + " --verbose and failed", "AWS_SECRET_ACCESS_KEY=" + canary + " failed", "private-key: " + canary + "\nfailed",
		"HTTPS_PROXY=root:" + canary + "@192.0.2.1:3128 failed", "HTTPS_PROXY=http://root:" + canary + "@192.0.2.1:3128 failed",
	} {
		got := string(Scrub([]byte(text)))
		assert.NotContains(t, got, canary, text)
		assert.NotContains(t, got, "4711", text)
		assert.Contains(t, got, "failed", text)
		assert.Contains(t, got, "[redacted]", text)
		assert.Equal(t, text[0] == '{', json.Valid([]byte(got)), "%s: what is JSON stays JSON", got)
	}
}

// What fenced writes itself is no secret, and stays as it is.
func TestScrubLeavesWhatIsNoSecret(t *testing.T) {
	for _, text := range []string{
		`{"reason":"SecretShared","message":"the Secret metal3/w-1 is also that of w-2","class":"person"}` + "\n",
		"hosts.d/a.yaml:3: hosts[0].bmc.passwordFile: /etc/x: permission denied\n", "it asks for basic authentication, not bearer credentials\n",
		`fenced_bmc_failures_total{device="ipmi://192.0.2.1:623",reason="BMCAuth"} 3` + "\n", "fencing token 7; user anna@example.com\n",
		"2026-11-24T02:31:36Z prod: anna@example.com held worker-3: new disk\n", `{"gates":[{"name":"host","pass":true,"value":"a \"b\" c"}]}` + "\n",
		"usage: fencectl --token-duration 720h, --password-file FILE\n",
		`"credential":"[redacted]" secret: '[redacted]'` + "\n",
	} {
		assert.Equal(t, text, string(Scrub([]byte(text))))
	}
	assert.Equal(t, "a \\u001b[2Jb\n", string(Scrub([]byte("a\t\x1b[2Jb\n"))), "a terminal obeys nothing in it")
}
