// Package vuln_test shows that the lookup of known vulnerabilities never says that it
// looked when it could not.
package vuln_test

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

// known says of a function that internal/audit calls that it is vulnerable.
const known = `{"schema_version":"1.3.1","id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z","published":"2026-01-01T00:00:00Z",
"details":"it adds up wrongly","affected":[{"package":{"name":"stdlib","ecosystem":"Go"},
"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
"ecosystem_specific":{"imports":[{"path":"crypto/sha256","symbols":["New"]}]}}],
"database_specific":{"url":"https://pkg.go.dev/vuln/GO-2026-0001"}}`

// database serves files as the real one does.
func database(t *testing.T, files map[string]string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := files[r.URL.Path]
		if !ok {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		z := gzip.NewWriter(w)
		_, err := io.WriteString(z, text)
		assert.NoError(t, errors.Join(err, z.Close()))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// fetched has go fetch and build govulncheck, and gives it and where go keeps modules: the
// script then needs the network for the database alone.
func fetched(t *testing.T) (built, cache string) {
	dir := t.TempDir()
	fetch := exec.Command("go", "install", "golang.org/x/vuln/cmd/govulncheck@v1.9.0")
	fetch.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := fetch.CombinedOutput(); err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "%s", out)
		t.Skipf("govulncheck cannot be had: %s", out)
	}
	out := must.Do(exec.Command("go", "env", "GOMODCACHE").Output())(t)
	return filepath.Join(dir, "govulncheck"), filepath.Join(strings.TrimSpace(string(out)), "cache/download")
}

func TestVulnSaysWhatItDid(t *testing.T) {
	built, cache := fetched(t)
	const meta = `{"modified":"2026-01-01T00:00:00Z"}`
	gone := httptest.NewServer(nil)
	gone.Close()
	for i, c := range []struct {
		name, env string
		status    int
		want      string
	}{
		{"nothing known", "GOVULNDB=" + database(t, map[string]string{"/index/db.json.gz": meta, "/index/modules.json.gz": "[]"}), 0, "vuln: no vulnerability in http://"},
		{"something known", "GOVULNDB=" + database(t, map[string]string{
			"/index/db.json.gz":        meta,
			"/index/modules.json.gz":   `[{"path":"stdlib","vulns":[{"id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z"}]}]`,
			"/ID/GO-2026-0001.json.gz": known,
		}), 3, "GO-2026-0001"},
		{"a mirror that is gone", "GOVULNDB=" + gone.URL, 75, "NOTHING WAS CHECKED"},
		{"the real one behind a proxy that is gone", "HTTPS_PROXY=" + gone.URL, 75, "https://vuln.go.dev cannot be reached: NOTHING WAS CHECKED"},
		{"forbidden on the way", "GOVULNDB=" + database(t, nil), 75, "NOTHING WAS CHECKED"},
		{"a broken one", "GOVULNDB=" + database(t, map[string]string{"/index/db.json.gz": meta, "/index/modules.json.gz": "[{"}), 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("./vuln.sh", "../../internal/audit")
			cmd.Env = append(os.Environ(), "GOVULNDB=", "NO_PROXY=", "GOPROXY=file://"+cache, "GOSUMDB=off", c.env)
			if i > 0 { // the first builds one itself
				cmd.Env = append(cmd.Env, "GOVULNCHECK="+built)
			}
			out, err := cmd.CombinedOutput()
			status := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				status = exit.ExitCode()
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, c.status, status, "%s", out)
			assert.Contains(t, string(out), c.want)
			assert.Equal(t, c.status == 75, strings.Contains(string(out), "NOTHING WAS CHECKED"), "%s", out)
			assert.Equal(t, c.status == 0, strings.Contains(string(out), "no vulnerability in"), "%s", out)
		})
	}
}
