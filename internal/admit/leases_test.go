package admit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// The versions of a Lease are dated by the clock of the reader. A slow look that ends after a newer one is no renewal, and names
// that nobody reads any more are forgotten. // I4
func TestVersionsOfALeaseAreDatedByTheirReader(t *testing.T) {
	s, noon := newLeasesSeen(), time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	year2999 := time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	read := func(version string, began, ended int) policy.Lease {
		return s.note("n", remediate.Lease{Known: true, ResourceVersion: version, RenewTime: year2999}, at(began), at(ended))
	}
	assert.Equal(t, policy.Lease{RenewTime: year2999, Since: at(1)}, read("1", 0, 1))
	assert.Equal(t, policy.Lease{RenewTime: year2999, Since: at(1)}, read("1", 10, 11), "it stands still")
	assert.Equal(t, policy.Lease{RenewTime: year2999, Since: at(21), Before: at(10)}, read("2", 20, 21), "it was renewed after the look that began at 10")
	assert.Equal(t, policy.Lease{RenewTime: year2999, Since: at(21), Before: at(10)}, read("1", 15, 22), "the answer of a slower look")
	assert.Equal(t, policy.Lease{}, s.note("n", remediate.Lease{}, at(30), at(31)), "it could not be read")
	assert.Equal(t, policy.Lease{}, s.note("n", remediate.Lease{Known: true}, at(32), at(33)), "there is none")
	later := int(2 * leasesKept / time.Second)
	for i := range 3 {
		s.note(fmt.Sprint("n-", i), remediate.Lease{Known: true, ResourceVersion: "1"}, at(later+i), at(later+i))
	}
	assert.Len(t, s.byNode, 3, "n is forgotten")
}
