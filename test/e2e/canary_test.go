package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/scene"
)

// No credential that the daemon was given is anywhere but where it was taken from:
// not in a command line, the log, the audit log, the metrics, an answer of the API
// or a file that it wrote; not after fences, refused accounts and orders neither. // I25
func TestNoCredentialShowsAnywhere(t *testing.T) {
	t.Parallel()
	needDebian(t, "ipmitool")
	metrics := freeAddress(t)
	s := set(t, scene.Options{
		Set: []string{"sweep.interval=10s", "power.readTimeout=2s", "metrics.listen=" + metrics, "log.level=debug"},
		Workers: []scene.Spec{
			{Name: "by-ipmi", Protocol: scene.IPMI},
			{Name: "by-redfish", Protocol: scene.Redfish, Metal3: true},
			{Name: "by-library", Protocol: scene.IPMI, Driver: scene.BMCLib},
			{Name: "refused", Protocol: scene.IPMI, WrongPassword: true},
			{Name: "refused-too", Protocol: scene.Redfish, Metal3: true, WrongPassword: true},
			{Name: "healthy", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	d := must.Do(s.StartDaemon(ctx))(t)
	secrets := canaries(t, s)
	seen := watchCommands(ctx, d.PID())
	enroll(ctx, t, s, "by-library")
	for _, name := range []string{"by-ipmi", "by-redfish", "by-library", "refused"} {
		s.Worker(name).Kubelet.Hang()
	}
	for _, name := range []string{"by-ipmi", "by-redfish", "by-library"} {
		awaitRun(ctx, t, s, name, result(wire.ResultDone))
	}

	places := map[string]string{"the metrics": get(ctx, t, http.DefaultTransport, "http://"+metrics+"/metrics")}
	for _, verb := range [][]string{
		{"status"}, {"plan"}, {"history"}, {"check-config"}, {"bmc", "list"}, {"bmc", "audit"},
		{"explain", "by-ipmi"}, {"explain", "refused"}, {"explain", "refused-too"}, {"timeline", "by-redfish"}, {"timeline", "refused"},
		{"bmc", "test", "refused"}, {"bmc", "test", "by-library"}, {"bmc", "audit", "refused-too"},
		{"fence", "refused", "--reason", "test", "--yes"}, {"fence", "refused-too", "--reason", "test", "--yes", "--dry-run"},
	} {
		r := must.Do(s.Fencectl(ctx, append(verb, "-o", "json")...))(t)
		require.NotEmpty(t, r.Stdout+r.Stderr)
		places["fencectl "+strings.Join(verb, " ")] = r.Stdout + r.Stderr
	}
	places["the events"] = events(ctx, t, s)
	must.Do(d.Terminate(ctx))(t)
	places["the command lines"] = seen()
	require.Contains(t, places["the command lines"], "ipmitool", "what the daemon started was looked at")
	places["the export"] = export(ctx, t, s)
	for _, name := range written(t, s) {
		data := must.Do(os.ReadFile(name))(t)
		places[name] = string(data)
	}
	for _, name := range []string{"fenced.log", "state.db", "audit.jsonl"} {
		require.NotEmpty(t, places[filepath.Join(filepath.Dir(s.Config()), name)])
	}
	for place, text := range places {
		for what, secret := range secrets {
			assert.False(t, strings.Contains(text, secret), "%s is in %s", what, place)
		}
	}
}

// canaries are the credentials of the scene, in the forms in which they could leak.
func canaries(t *testing.T, s *scene.Scene) map[string]string {
	t.Helper()
	all := map[string]string{}
	for what, secret := range map[string]string{"the password": scene.Password, "the refused password": scene.WrongPassword} {
		all[what] = secret
		all[what+" in base64"] = base64.RawStdEncoding.EncodeToString([]byte(secret))
		all[what+" for HTTP"] = strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(scene.User+":"+secret)), "=")
		all[what+" in hexadecimal digits"] = hex.EncodeToString([]byte(secret))
		all[what+" in a URL"] = url.UserPassword(scene.User, secret).String()
	}
	configuration := must.Do(os.ReadFile(s.Config()))(t)
	path := regexp.MustCompile(`kubeconfig: (\S+),`).FindSubmatch(configuration)
	require.NotNil(t, path)
	text := must.Do(os.ReadFile(string(path[1])))(t)
	var kubeconfig struct {
		Users []struct {
			User struct {
				Key []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	require.NoError(t, yaml.Unmarshal(text, &kubeconfig))
	key := kubeconfig.Users[0].User.Key
	require.Contains(t, string(key), "PRIVATE KEY")
	all["the API's key, encoded"] = base64.StdEncoding.EncodeToString(key)
	all["the API's key"] = strings.Split(string(key), "\n")[1]
	return all
}

// watchCommands collects the command lines of the daemon and of all that it starts,
// and the daemon's own environment, until it is called.
func watchCommands(ctx context.Context, pid int) (stop func() string) {
	ctx, cancel := context.WithCancel(ctx)
	done, found := make(chan struct{}), map[string]bool{}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil {
				found[string(env)] = true
			}
			for _, p := range family(pid) {
				if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p)); err == nil {
					found[string(line)] = true
				}
			}
			time.Sleep(5 * time.Millisecond) // an ipmitool lives three times as long, and longer on a busy machine
		}
	}()
	return func() string {
		cancel()
		<-done
		var b strings.Builder
		for line := range found {
			b.WriteString(line + "\n")
		}
		return b.String()
	}
}

// family is a process and all below it. It is asked hundreds of times a second, beside hundreds of other processes: so it looks at nothing but theirs.
func family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		tasks := fmt.Sprintf("/proc/%d/task", all[i])
		threads, _ := os.ReadDir(tasks) // it may have ended
		for _, thread := range threads {
			text, _ := os.ReadFile(tasks + "/" + thread.Name() + "/children") // so may the thread
			for _, field := range strings.Fields(string(text)) {
				if child, err := strconv.Atoi(field); err == nil {
					all = append(all, child)
				}
			}
		}
	}
	return all
}

// export is the whole state, as it is moved to another store.
func export(ctx context.Context, t *testing.T, s *scene.Scene) string {
	t.Helper()
	programs := must.Do(builds())(t)
	file := filepath.Join(t.TempDir(), "export")
	text, err := exec.CommandContext(ctx, programs.Fenced, "--config", s.Config(), "--export", file).CombinedOutput()
	require.NoError(t, err, "%s", text)
	data := must.Do(os.ReadFile(file))(t)
	require.Contains(t, string(data), "by-ipmi")
	return string(data)
}

// events is what the control API tells in a while.
func events(ctx context.Context, t *testing.T, s *scene.Scene) string {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.Socket())
	}}
	defer transport.CloseIdleConnections()
	var text string
	while := time.Second
	pace.Until(t, "the events tell of the Off", func() bool { // a busy machine needs a longer while
		while *= 2
		ctx, cancel := context.WithTimeout(ctx, while)
		defer cancel()
		req := must.Do(http.NewRequestWithContext(ctx, http.MethodGet, "http://fenced/v1/events?after=0", nil))(t)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Log(err)
			return false
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body) // the stream ends with ctx
		text = string(body)
		return strings.Contains(text, "SendOff")
	})
	return text
}

// get reads an answer until it ends or ctx does.
func get(ctx context.Context, t *testing.T, by http.RoundTripper, address string) string {
	t.Helper()
	req := must.Do(http.NewRequestWithContext(ctx, http.MethodGet, address, nil))(t)
	resp := must.Do(by.RoundTrip(req))(t)
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // a stream ends with ctx
	require.NotEmpty(t, body)
	return string(body)
}

// written are the files that the daemon made.
func written(t *testing.T, s *scene.Scene) []string {
	t.Helper()
	dir := filepath.Dir(s.Config())
	var all []string
	for _, pattern := range []string{"fenced.log", "state.db*", "audit.jsonl*"} {
		names := must.Do(filepath.Glob(filepath.Join(dir, pattern)))(t)
		all = append(all, names...)
	}
	return all
}

// The passwords that only this test gives the daemon.
const (
	credentialCanary = "from-systemd-4711"
	tokenCanary      = "token-of-a-kubeconfig"
)

// TestSupportBundleHoldsNoSecret: of all that the daemon of this scene was given, and of what other
// programs wrote into its journal, no secret is in the bundle; neither while it runs nor when it is
// down. What helps is in it. // I25
func TestSupportBundleHoldsNoSecret(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Set: []string{"sweep.interval=10s", "power.readTimeout=2s", "log.level=debug"},
		Workers: []scene.Spec{
			{Name: "by-ipmi", Protocol: scene.IPMI},
			{Name: "by-redfish", Protocol: scene.Redfish, Metal3: true},
			{Name: "refused", Protocol: scene.IPMI, WrongPassword: true},
			{Name: "by-credential", Protocol: scene.IPMI, Unlisted: true},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	etcd, _ := shareEtcd(t, s)
	put(t, s, "conf.d/more.yaml", fmt.Sprintf("metrics: {listen: %q}\nstate: {engine: etcd, etcd: {endpoints: [%s], ca: %s, cert: %s, key: %s}}\n",
		freeAddress(t), strings.Join(etcd.Endpoints(), ", "), etcd.CA(), etcd.Cert(), etcd.Key()))
	put(t, s, "hosts.d/credential.yaml", fmt.Sprintf("hosts:\n- node: by-credential\n  bmc: {address: %q, username: fence, credential: bmc}\n", s.Worker("by-credential").Address()))
	credentials := filepath.Dir(put(t, s, "credentials/bmc", credentialCanary))
	secrets := canaries(t, s)
	secrets["the credential"], secrets["the token"] = credentialCanary, tokenCanary
	secrets["the key of the etcd"] = keyLine(t, etcd.Key())
	addToken(t, s)

	programs := must.Do(builds())(t)
	d := must.Do(s.Launch(programs.Fenced, "CREDENTIALS_DIRECTORY="+credentials))(t)
	require.NoError(t, s.WaitSocket(ctx, d))
	for _, name := range []string{"by-ipmi", "by-redfish", "refused", "by-credential"} {
		s.Worker(name).Kubelet.Hang()
	}
	awaitRun(ctx, t, s, "by-ipmi", result(wire.ResultDone))
	awaitRun(ctx, t, s, "by-redfish", result(wire.ResultDone))
	awaitRefusal(ctx, t, s, "refused", "BMCAuth")
	awaitRefusal(ctx, t, s, "by-credential", "BMCAuth")

	parts := supportBundle(ctx, t, s, secrets)
	requireNoSecret(t, parts, secrets)
	for name, want := range map[string]string{
		"MANIFEST": "the daemon answered", "versions.txt": "fencectl: ", "status.json": `"reason":"BMCAuth"`, "explain/scene/refused.json": `"refused":"BMCAuth"`,
		"explain/scene/by-credential.json": `"gates"`, "timeline/scene/refused.json": `"notes"`, "runs.json": `"result":"Done"`, "bmcs.json": `"reason":"BMCAuth"`,
		"metrics.txt": "fenced_audit_writable 1", "journal.txt": "password=[redacted]", "audit.txt": "are as they were written\nhead ",
		"configuration/fenced.yaml": "name: scene", "configuration/conf.d/more.yaml": "engine: etcd", "configuration/hosts.d/hosts.yaml": "username: fence",
		"configuration/hosts.d/credential.yaml": "node: by-credential", "configuration/access.txt": etcd.Key(),
	} {
		assert.Contains(t, parts[name], want, name)
	}
	assert.NotContains(t, parts["MANIFEST"], "json: not read")

	must.Do(d.Terminate(ctx))(t)
	parts = supportBundle(ctx, t, s, secrets)
	requireNoSecret(t, parts, secrets)
	assert.Contains(t, parts["MANIFEST"], "the daemon did not answer, so its parts are missing")
	assert.NotContains(t, parts, "status.json")
	assert.Contains(t, parts["audit.txt"], "are as they were written")
	assert.Contains(t, parts["configuration/fenced.yaml"], "name: scene")
}

// put writes a file beside fenced.yaml, and gives its path.
func put(t *testing.T, s *scene.Scene, name, text string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(s.Config()), name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// addToken gives the kubeconfig another user, whom nobody uses, with a token.
func addToken(t *testing.T, s *scene.Scene) {
	t.Helper()
	configuration := must.Do(os.ReadFile(s.Config()))(t)
	path := regexp.MustCompile(`kubeconfig: (\S+),`).FindSubmatch(configuration)
	require.NotNil(t, path)
	text := must.Do(os.ReadFile(string(path[1])))(t)
	users := []byte("users:\n")
	require.Equal(t, 1, bytes.Count(text, users))
	text = bytes.Replace(text, users, []byte("users:\n- name: nobody\n  user:\n    token: "+tokenCanary+"\n"), 1)
	require.NoError(t, os.WriteFile(string(path[1]), text, 0o600))
}

func keyLine(t *testing.T, file string) string {
	t.Helper()
	text := must.Do(os.ReadFile(file))(t)
	require.Contains(t, string(text), "PRIVATE KEY-----\n")
	return strings.Split(string(text), "\n")[1]
}

// supportBundle are the parts of a bundle, by name, and the archive itself as "". The journal has the
// daemon's own lines, and others that have every secret in a form in which programs write it.
func supportBundle(ctx context.Context, t *testing.T, s *scene.Scene, secrets map[string]string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	log := must.Do(os.ReadFile(filepath.Join(filepath.Dir(s.Config()), "fenced.log")))(t)
	for _, secret := range secrets {
		log = fmt.Appendf(log, "sent password=%s to https://fence:%s@192.0.2.1/\n-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n", secret, secret, secret)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "journal"), log, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "journalctl"), []byte("#!/bin/sh\ncat "+dir+"/journal\n"), 0o700))

	programs := must.Do(builds())(t)
	file := filepath.Join(dir, "bundle.tar.gz")
	cmd := exec.CommandContext(ctx, programs.Fencectl, "--socket", s.Socket(), "support-bundle", "-o", file, "--config", s.Config())
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	archive := must.Do(os.ReadFile(file))(t)
	parts := map[string]string{"": string(archive) + string(said)}
	zip := must.Do(gzip.NewReader(bytes.NewReader(archive)))(t)
	for members := tar.NewReader(zip); ; {
		h, err := members.Next()
		if errors.Is(err, io.EOF) {
			return parts
		}
		require.NoError(t, err)
		text := must.Do(io.ReadAll(members))(t)
		parts[strings.TrimPrefix(h.Name, "fenced-support/")] = h.Name + "\n" + string(text)
	}
}

func requireNoSecret(t *testing.T, parts, secrets map[string]string) {
	t.Helper()
	require.Greater(t, len(secrets), 10)
	for name, text := range parts {
		for what, secret := range secrets {
			assert.False(t, strings.Contains(text, secret), "%s is in part %q", what, name)
		}
	}
}
