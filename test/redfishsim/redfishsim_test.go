package redfishsim

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/pace"
)

// caller is a plain HTTP client of one service, with Basic authentication.
type caller struct {
	t    *testing.T
	sim  *Server
	http *http.Client
}

func start(t *testing.T, o Options) (*Server, caller) {
	t.Helper()
	sim, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(sim.Stop)
	ca, err := os.ReadFile(sim.CAFile())
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	return sim, caller{t: t, sim: sim, http: &http.Client{Transport: tr, Timeout: 10 * pace.Hang}}
}

func (c caller) do(method, path, body string) (*http.Response, map[string]any) {
	c.t.Helper()
	req, err := http.NewRequest(method, c.sim.URL()+path, strings.NewReader(body))
	require.NoError(c.t, err)
	req.SetBasicAuth("admin", "secret")
	resp, err := c.http.Do(req)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	var v map[string]any
	if resp.StatusCode != http.StatusNoContent {
		require.NoError(c.t, json.NewDecoder(resp.Body).Decode(&v))
	}
	return resp, v
}

func (c caller) state() any {
	_, v := c.do(http.MethodGet, c.sim.System(0).URI(), "")
	return v["PowerState"]
}

func (c caller) reset(kind string) int {
	resp, _ := c.do(http.MethodPost, c.sim.System(0).URI()+resetPath, `{"ResetType":"`+kind+`"}`)
	return resp.StatusCode
}

func TestResetSwitchesTheHost(t *testing.T) {
	sim, c := start(t, Options{})
	assert.Equal(t, "On", c.state())
	assert.Equal(t, http.StatusNoContent, c.reset("ForceOff"))
	assert.False(t, sim.Power())
	assert.Equal(t, "Off", c.state())
	assert.Equal(t, http.StatusNoContent, c.reset("On"))
	assert.True(t, sim.Power())
	assert.Equal(t, http.StatusBadRequest, c.reset("PushPowerButton"))
	assert.Equal(t, []bool{false, true}, sim.System(0).Commands())
	assert.Equal(t, 2, sim.Count(http.MethodGet, sim.System(0).URI()))
}

func TestLieOff(t *testing.T) {
	sim, c := start(t, Options{})

	require.NoError(t, sim.LieOff(true))
	assert.Equal(t, "Off", c.state())
	assert.True(t, sim.Power())
	require.NoError(t, sim.LieOff(false))

	assert.Equal(t, "On", c.state())
}

func TestStopIsFinalAndRepeatable(t *testing.T) {
	sim, c := start(t, Options{})
	sim.Stop()
	sim.Stop()
	_, err := c.http.Get(sim.URL() + rootURI)
	require.Error(t, err)
	assert.NoFileExists(t, sim.CAFile())
}
