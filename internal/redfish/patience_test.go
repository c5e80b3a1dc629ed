package redfish

import "time"

// A busy machine delays any of these by many seconds. Close has less, because the suite of all
// drivers bounds it, and so has a body that never comes, which some tests wait for.
func init() {
	dialTimeout, tlsTimeout, headerTimeout, closeTimeout = time.Minute, time.Minute, time.Minute, 20*time.Second
	bodyTimeout = 2 * time.Second
}
