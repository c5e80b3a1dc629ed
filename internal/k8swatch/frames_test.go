package k8swatch

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
)

// The limit is about one value, however many there are, and however they are cut.
func TestFramesAreBounded(t *testing.T) {
	long := strings.Repeat("x", maxObject/3)
	for name, c := range map[string]struct {
		one   string
		times int
		want  error
	}{
		"many values":                   {`{"a":"` + long + `"}` + "\n", 10, nil},
		"brackets and quotes in texts":  {`{"}]":"\"}` + long + `\\","b":["]"]}`, 10, nil},
		"lists":                         {`[[{"a":[]}],"` + long + `"]`, 10, nil},
		"one value":                     {`{"a":["` + long + `"],"b":`, 4, errBodyTooLarge},
		"closing brackets in a text":    {`{"a":"` + strings.Repeat("}", maxObject), 2, errBodyTooLarge},
		"a text without an end":         {`{"a":"` + strings.Repeat(`\"}`, maxObject), 1, errBodyTooLarge},
		"white space between values":    {"{}" + strings.Repeat("\n", maxObject+1), 1, errBodyTooLarge},
		"white space in a value":        {"{" + strings.Repeat("\n", maxObject), 1, errBodyTooLarge},
		"a number":                      {strings.Repeat("1", maxObject+1), 1, errBodyTooLarge},
		"brackets that close only half": {strings.Repeat("[[]", maxObject), 1, errBodyTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			whole := strings.NewReader(strings.Repeat(c.one, c.times))
			read, err := io.Copy(io.Discard, &boundedFrames{ReadCloser: io.NopCloser(iotest.HalfReader(whole))})
			assert.Equal(t, c.want, err)
			if c.want == nil {
				assert.Equal(t, int64(len(c.one)*c.times), read)
			}
		})
	}
}
