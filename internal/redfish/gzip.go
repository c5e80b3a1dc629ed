package redfish

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// expand returns the body of an answer without its compression. fenced asks for
// none; iLO 5 compresses large resources all the same. At most limit+1 bytes are
// expanded, so that the caller sees that there is more.
func expand(h http.Header, body []byte, limit int64) ([]byte, error) {
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(h.Values("Content-Encoding"), ",")))
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
	default:
		return nil, failf(bmc.KindProtocol, "the answer has the encoding %q, which was not asked for", bmc.Printable(encoding, maxIdentity))
	}
	h.Del("Content-Encoding")
	if len(body) == 0 {
		return body, nil // 204
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, failf(bmc.KindProtocol, "expand the answer: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err != nil {
		return nil, failf(bmc.KindProtocol, "expand the answer: %w", err)
	}
	return b, nil
}
