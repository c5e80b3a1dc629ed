package k8swatch

import "io"

// boundedFrames limits each JSON value of a watch. client-go reads one whole before it decodes it,
// however long it is. A value ends where its outermost bracket closes; whatever comes between two
// values counts for the second.
type boundedFrames struct {
	io.ReadCloser
	size              int64 // bytes since the last value ended
	depth             int   // brackets that are open
	inString, escaped bool
}

func (b *boundedFrames) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		if b.size++; b.size > maxObject {
			return 0, errBodyTooLarge
		}
		b.follow(c)
	}
	return n, err
}

func (b *boundedFrames) follow(c byte) {
	switch {
	case b.escaped:
		b.escaped = false
	case b.inString:
		b.escaped, b.inString = c == '\\', c != '"'
	case c == '"':
		b.inString = true
	case c == '{', c == '[':
		b.depth++
	case c == '}', c == ']':
		if b.depth--; b.depth <= 0 { // below zero it is no JSON, and the decoder ends the watch
			b.depth, b.size = 0, 0
		}
	}
}
