package main

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/config"
)

// Each guard and deadline that a reload takes in changes what the engine is given; one that
// needs a restart changes nothing then.
func TestLiveGuardsAndDeadlinesReachTheEngine(t *testing.T) {
	was := config.Default()
	live := 0
	for _, section := range []string{"Guards", "Power"} {
		of := reflect.ValueOf(was).FieldByName(section)
		for i := range of.NumField() {
			now := config.Default()
			v := reflect.ValueOf(&now).Elem().FieldByName(section).Field(i)
			switch v.Kind() {
			case reflect.String:
				v.SetString("other")
			case reflect.Bool:
				v.SetBool(!v.Bool())
			default:
				v.SetInt(v.Int() + 1)
			}
			changes := config.Changes(was, now)
			next := config.TakeLive(was, now)
			taken := guardLimits(next.Guards) != guardLimits(was.Guards) || runLimits(next) != runLimits(was)
			assert.Equal(t, changes[0].Live, taken, changes[0].Key)
			if changes[0].Live {
				live++
			}
		}
	}
	assert.Greater(t, live, 20)
}
