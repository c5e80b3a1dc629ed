package k8swatch

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// What client-go logs by itself, as a warning of the API server, goes to the daemon's log.
func TestLogTo(t *testing.T) {
	var said bytes.Buffer
	LogTo(&said)
	defer klog.ClearLogger()
	rest.WarningLogger{}.HandleWarningHeader(299, "", "this version is deprecated")
	assert.Contains(t, said.String(), "this version is deprecated")
	assert.NotContains(t, said.String(), "time=")
}
