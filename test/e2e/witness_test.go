package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/scene"
)

const witnessEvery = 150 * time.Millisecond

// testimony is one answer of a BMC to a client that has nothing in common with
// fenced's own.
type testimony struct {
	asked, answered time.Time
	state           string // as that client said it
}

// witness asks a BMC again and again.
type witness struct {
	mu   sync.Mutex
	seen []testimony
}

// watchBMC asks a worker's BMC until the test ends: with ipmitool, or by plain
// HTTPS.
func watchBMC(t *testing.T, w *scene.Worker) *witness {
	t.Helper()
	ask := askIPMI(t, w)
	if w.Service != nil {
		ask = askRedfish(t, w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wit := &witness{}
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			asked := time.Now()
			if state, err := ask(ctx); err == nil { // no answer is no testimony
				wit.add(testimony{asked, time.Now(), state})
			}
			select {
			case <-ctx.Done():
			case <-time.After(witnessEvery):
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return wit
}

func (w *witness) add(t testimony) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, t)
}

// requireOffAt checks that the BMC said off in the last answer before at, in
// every one that was under way then, and in the first one after.
func (w *witness) requireOffAt(t *testing.T, at time.Time) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	before, after := testimony{}, testimony{}
	for _, s := range w.seen {
		switch {
		case !s.answered.After(at):
			before = s
		case after.asked.Before(at): // also the one that was under way
			require.Equal(t, "off", s.state, "asked %s, answered %s, the Node was deleted %s", s.asked, s.answered, at)
			after = s
		}
	}
	require.Equal(t, "off", before.state, "answered %s, the Node was deleted %s", before.answered, at)
	require.WithinDuration(t, at, before.answered, pace.Tries, "the last answer before the deletion")
	require.Equal(t, "off", after.state, "the first answer after the deletion")
}

// saidOn says whether this witness ever saw the host on: else its "off" proves
// nothing.
func (w *witness) saidOn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if s.state == "on" {
			return true
		}
	}
	return false
}

func askIPMI(t *testing.T, w *scene.Worker) func(context.Context) (string, error) {
	t.Helper()
	if w.Service != nil {
		return nil
	}
	host, port, err := net.SplitHostPort(w.BMC.Addr())
	require.NoError(t, err)
	return func(ctx context.Context) (string, error) {
		cmd := exec.CommandContext(ctx, "ipmitool", "-I", "lanplus", "-C", "3", "-H", host, "-p", port,
			"-U", scene.User, "-P", scene.Password, "-N", "1", "-R", "1", "chassis", "power", "status")
		out, err := cmd.Output()
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(strings.TrimPrefix(string(out), "Chassis Power is ")), nil
	}
}

func askRedfish(t *testing.T, w *scene.Worker) func(context.Context) (string, error) {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(w.Service.CAPEM()))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: 2 * time.Second}
	url := w.Service.URL() + w.Service.System(0).URI()
	return func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		req.SetBasicAuth(scene.User, scene.Password)
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		var system struct{ PowerState string }
		if err := json.NewDecoder(resp.Body).Decode(&system); err != nil {
			return "", err
		}
		if resp.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%s", resp.Status)
		}
		return strings.ToLower(system.PowerState), nil
	}
}

// needDebian skips without the Debian peers, which CI must have.
func needDebian(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed; `make deps` does it", p)
		}
		t.Skipf("%s is not installed; `make deps` does it", p)
	}
}
