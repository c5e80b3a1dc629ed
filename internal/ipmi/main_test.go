package ipmi

import (
	"os"
	"testing"

	"github.com/fenced/fenced/test/pace"
)

func TestMain(m *testing.M) {
	pace.Together(4) // they wait for timeouts most of the time
	os.Exit(m.Run())
}
