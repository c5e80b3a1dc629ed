package bmc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.yaml.in/yaml/v3"
)

// hidden holds a Secret where fmt cannot ask its methods.
type hidden struct{ password Secret }

func TestSecretNeverPrints(t *testing.T) { // I25
	s := NewSecret(canary)
	host := Host{Name: "h", Levels: []Level{{Devices: []Device{{Password: s}}}}}
	for _, v := range []any{s, &s, []Secret{s}, map[string]Secret{"k": s}, map[Secret]int{s: 1}, host, &host, hidden{s}, &hidden{s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%o", "%p", "%20s", "%w"} {
			text := fmt.Sprintf(verb, v)
			assert.NotContains(t, text, canary, "%s of %T", verb, v)
			assert.NotContains(t, text, fmt.Sprintf("%x", canary), "%s of %T", verb, v)
		}
	}
	assert.Equal(t, "[redacted] [redacted]", fmt.Sprintf("%v %d", s, s))
	assert.Equal(t, "[redacted]", s.String())
}

func TestSecretNeverMarshals(t *testing.T) { // I25
	v := struct {
		Password Secret `json:"password" yaml:"password"`
		Host     Host   `json:"host" yaml:"host"`
	}{NewSecret(canary), Host{Levels: []Level{{Devices: []Device{{Password: NewSecret(canary)}}}}}}
	j, err := json.Marshal(v)
	require.NoError(t, err)
	y, err := yaml.Marshal(v)
	require.NoError(t, err)
	for _, text := range [][]byte{j, y} {
		assert.NotContains(t, string(text), canary)
		assert.Contains(t, string(text), "[redacted]")
	}
}

func TestSecretNeverLogs(t *testing.T) { // I25
	var out bytes.Buffer
	for _, enc := range []zapcore.Encoder{
		zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()),
	} {
		log := zap.New(zapcore.NewCore(enc, zapcore.AddSync(&out), zap.DebugLevel))
		s := NewSecret(canary)
		log.Info("m", zap.Any("a", s), zap.Stringer("b", s), zap.Any("c", Device{Password: s}), zap.Any("d", hidden{s}), zap.Reflect("e", &s))
		log.Sugar().Infof("%v %+v", s, hidden{s})
		log.Sugar().Infow("m", "k", s)
	}
	assert.NotContains(t, out.String(), canary)
	assert.Contains(t, out.String(), "[redacted]")
}

func TestSecretReveals(t *testing.T) {
	assert.Equal(t, canary, NewSecret(canary).Reveal())
	assert.False(t, NewSecret(canary).Empty())
	assert.True(t, NewSecret("").Empty())
	assert.True(t, Secret{}.Empty())
	assert.Empty(t, Secret{}.Reveal())
}
