package k8swatch

import "time"

// A busy machine delays an API server by many seconds.
func init() { requestTimeout = 20 * time.Second }
