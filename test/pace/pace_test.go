package pace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Failed() bool          { return f.failed }
func (f *failing) Errorf(string, ...any) { f.failed = true }

func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		Once(t, time.Second, func() {
			if tries++; tries < 3 {
				time.Sleep(2 * time.Second)
			}
		})
		assert.Equal(t, 3, tries, "until one was in time")

		f := &failing{TB: t}
		Once(f, time.Second, func() { time.Sleep(time.Second) })
		assert.True(t, f.failed, "all were late")
	})
}

func TestLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Lasts(t, time.Second, time.Second, func() { time.Sleep(time.Second) })
		for _, d := range []time.Duration{time.Second - 1, 2 * time.Second} {
			f := &failing{TB: t}
			Lasts(f, time.Second, time.Second, func() { time.Sleep(d) })
			assert.True(t, f.failed, d)
		}
	})
}

func TestBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var judged []time.Duration
		look := func(d time.Duration) func() {
			time.Sleep(3 * time.Second)
			return func() { judged = append(judged, d) }
		}
		Before(t, time.Second, look)
		assert.Equal(t, []time.Duration{4 * time.Second}, judged, "only what was seen in time")

		f := &failing{TB: t}
		Before(f, time.Second, func(d time.Duration) func() {
			time.Sleep(d)
			return func() { t.Error("too late") }
		})
		assert.True(t, f.failed)
	})
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		Until(t, "three", func() bool { tries++; return tries == 3 })
		assert.Equal(t, 3, tries)

		f := &failing{TB: t}
		Until(f, "never", func() bool { time.Sleep(time.Second); return false })
		assert.True(t, f.failed)
	})
}

func TestFit(t *testing.T) {
	assert.Equal(t, 1, Fit(1<<60), "one is tried, whatever it needs")
	kilobyte := Fit(1 << 10)
	assert.Greater(t, kilobyte, Fit(1<<20))
	assert.Less(t, kilobyte, 1<<40, "a limit was read")
}
