package k8swatch

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fenced/fenced/internal/remediate"
)

// Whoever wrote the highest number of changes into a Lease does not keep fenced from taking it.
func TestLeaseWithTheHighestNumberOfChangesIsTaken(t *testing.T) {
	for was, want := range map[int32]int32{0: 1, 7: 8, math.MaxInt32: math.MaxInt32} {
		holder := "nobody"
		l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &was}}
		(&nodeLocks{holder: "fenced-1"}).holdNode(l, remediate.Run{}, time.Now())
		assert.Equal(t, want, *l.Spec.LeaseTransitions)
		l.Spec.LeaseTransitions, l.Spec.HolderIdentity = &was, nil
		(&announcer{}).takeLease(l, Announcement{Instance: "a"})
		assert.Equal(t, want, *l.Spec.LeaseTransitions)
	}
}
