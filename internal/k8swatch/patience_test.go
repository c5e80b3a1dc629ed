package k8swatch

import (
	"time"

	"github.com/fenced/fenced/internal/k8swatch/client"
)

// A busy machine delays an API server by many seconds.
func init() { client.RequestTimeout = 20 * time.Second }
