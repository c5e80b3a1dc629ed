package request

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/test/must"
)

// The health check for Argo CD in docs/systems.md, in the interpreter that Argo CD has, gives each phase its health.
func TestHealthInArgoCD(t *testing.T) {
	page := string(must.Do(os.ReadFile("../../docs/systems.md"))(t))
	_, rest, found := strings.Cut(page, "#### Health in Argo CD")
	require.True(t, found)
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	block, _, _ := strings.Cut(rest, "```")
	var config struct{ Data map[string]string }
	require.NoError(t, yaml.Unmarshal([]byte(block), &config))
	script := config.Data["resource.customizations.health.fenced.io_FencedRemediation"]
	require.NotEmpty(t, script)
	for phase, want := range map[string]string{
		"": "Progressing", Pending: "Progressing", Running: "Progressing", Held: "Degraded", Failed: "Degraded", Succeeded: "Healthy",
	} {
		l := lua.NewState()
		defer l.Close()
		status := l.NewTable()
		l.SetField(status, "observedGeneration", lua.LNumber(-1))
		if phase != "" {
			conditions := l.NewTable()
			for _, c := range (Status{}).set(phase, "Unknown", "Unknown", "Why", "the message").Conditions {
				m := l.NewTable()
				for key, text := range map[string]string{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message} {
					l.SetField(m, key, lua.LString(text))
				}
				conditions.Append(m)
			}
			l.SetField(status, "conditions", conditions)
		}
		obj := l.NewTable()
		l.SetField(obj, "status", status)
		l.SetGlobal("obj", obj)
		require.NoError(t, l.DoString(script), phase)
		health, is := l.Get(-1).(*lua.LTable)
		require.True(t, is)
		assert.Equal(t, want, l.GetField(health, "status").String(), phase)
		if phase != "" {
			assert.Equal(t, "the message", l.GetField(health, "message").String(), phase)
		}
	}
}
