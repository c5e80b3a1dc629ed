package redfish

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// FuzzAnswer feeds the transport cut and lying HTTP answers, after which the service
// ends the connection, or keeps it and is silent. The status of an answer counts whatever
// its body, and a reading is whole or none. net/http's own reader of answers is the judge.
func FuzzAnswer(f *testing.F) {
	const off = `{"PowerState":"Off"}`
	for _, head := range []string{"200 OK", "201 Created", "204 No Content", "302 Found", "401 Unauthorized", "503 Service Unavailable"} {
		for _, body := range []string{
			"Content-Length: 20\r\n\r\n" + off, "Content-Length: 20\r\n\r\n" + off[:9], "Content-Length: 9\r\n\r\n" + off,
			"Content-Length: 30\r\n\r\n" + off, "Content-Length: -1\r\n\r\n" + off, "\r\n" + off,
			"Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n14\r\n" + off + "\r\n",
			"Transfer-Encoding: chunked\r\n\r\n14\r\n" + off + "\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nlength\r\n",
			"Content-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + off,
		} {
			for method := range methods {
				f.Add("HTTP/1.1 "+head+"\r\n"+body, byte(method), method%2 == 0)
			}
		}
	}
	was := bodyTimeout
	bodyTimeout = 10 * time.Millisecond // what is cut off then is a text for people
	f.Cleanup(func() { bodyTimeout = was })
	f.Fuzz(func(t *testing.T, raw string, method byte, stays bool) {
		req, err := http.NewRequestWithContext(t.Context(), methods[int(method)%len(methods)], "http://bmc/redfish/v1/Systems/1", nil)
		require.NoError(t, err)
		judge, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), req)
		if err != nil || judge.StatusCode < 200 || len(raw) > maxHeader {
			return // not one answer
		}
		whole, incomplete := io.ReadAll(judge.Body)
		needed := bmc.NeedsBody(judge)
		if needed && stays { // what is missing never comes
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			req = req.WithContext(ctx)
		}
		resp, err := answering(t, raw, stays).once(req)
		switch {
		case !needed:
			require.NoError(t, err)
			assert.Equal(t, judge.StatusCode, resp.StatusCode)
		case err == nil:
			assert.NoError(t, incomplete, "half a reading")
			if judge.Header.Get("Content-Encoding") == "" {
				got, readErr := io.ReadAll(resp.Body)
				require.NoError(t, readErr)
				assert.True(t, bytes.Equal(whole, got))
			}
		default:
			assert.True(t, stays || incomplete != nil || judge.Header.Get("Content-Encoding") != "", "%v", err)
		}
	})
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodDelete}

// answering is a transport to a service that answers one request with raw.
func answering(t *testing.T, raw string, stays bool) *transport {
	here, there := net.Pipe()
	e, err := bmc.ParseEndpoint("redfish+http://bmc/redfish/v1/Systems/1")
	require.NoError(t, err)
	c, err := New(bmc.Device{Endpoint: e}, bmc.Timing{})
	require.NoError(t, err)
	c.wire.base.DialContext = func(context.Context, string, string) (net.Conn, error) { return here, nil }
	t.Cleanup(func() {
		c.wire.base.CloseIdleConnections()
		_ = here.Close()
		_ = there.Close()
	})
	go func() {
		if _, err := http.ReadRequest(bufio.NewReader(there)); err != nil {
			return
		}
		_, _ = io.WriteString(there, raw) // the client may have enough before
		if !stays {
			_ = there.Close()
		}
	}()
	return c.wire
}
