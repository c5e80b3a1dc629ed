package redfish

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stmcginnis/gofish/redfish"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/must"
)

// seed adds every maker's file of this name, and texts.
func seed(f *testing.F, name string, texts ...string) {
	f.Helper()
	paths := must.Do(filepath.Glob(filepath.Join("testdata", "vendor", "*", name+".json")))(f)
	require.NotEmpty(f, paths)
	for _, p := range paths {
		b := must.Do(os.ReadFile(p))(f)
		f.Add(b)
	}
	for _, s := range texts {
		f.Add([]byte(s))
	}
}

// decoded is b as a resource, and as encoding/json reads it; false is neither, or an
// answer that repeats a name.
func decoded(t *testing.T, b []byte) (object, map[string]any, bool) {
	o, err := decode(b)
	if err != nil {
		return nil, nil, false
	}
	var plain map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // 4e444 is one, and no float64
	require.NoError(t, d.Decode(&plain))
	return o, plain, true
}

// FuzzSystem feeds the decoder anything: Off is only ever the exact word in the
// exact place, and what is kept is bounded text.
func FuzzSystem(f *testing.F) {
	seed(f, "system",
		`{"@odata.type":"#ComputerSystem.v1_20_0.ComputerSystem","PowerState":"Off","UUID":"u","SerialNumber":"s"}`,
		`{"PowerState":"PoweringOff"}`, `{"PowerState":null}`, `{"PowerState":["Off"]}`, `{"POWERSTATE":"Off"}`, `null`, `[]`,
		`{"PowerState":"On","PowerState":"Off"}`, `{"PowerState":"On","powerstate":"Off"}`, `{"PowerState":"Off"} {}`,
		`{"Actions":{"#ComputerSystem.Reset":{"target":"/x","ResetType@Redfish.AllowableValues":["ForceOff"]}}}`,
		`{"Actions":{"#ComputerSystem.Reset":{"target":7}}}`, `{"UUID":5,"SerialNumber":{}}`,
	)
	f.Fuzz(func(t *testing.T, b []byte) {
		o, plain, ok := decoded(t, b)
		if !ok {
			return
		}
		s := asSystem("/s", o)
		r := s.reading(time.Now())
		assert.Equal(t, plain["PowerState"] == "Off", r.State == bmc.Off)
		assert.Equal(t, plain["PowerState"] == "On", r.State == bmc.On)
		assert.LessOrEqual(t, len(r.Raw), maxRaw)
		assert.LessOrEqual(t, len(r.Identity.UUID), maxIdentity)
		assert.True(t, utf8.ValidString(r.Raw))
		assert.True(t, utf8.ValidString(r.Identity.Serial))
		if kind, err := s.reset.choose(bmc.CommandOff); err == nil {
			assert.Equal(t, redfish.ForceOffResetType, kind)
		}
	})
}

// FuzzActionInfo feeds the decoder anything: what it allows stands in the answer.
func FuzzActionInfo(f *testing.F) {
	seed(f, "actioninfo",
		`{"Parameters":[{"Name":"ResetType","AllowableValues":["ForceOff",7]}]}`, `{"Parameters":{}}`, `{"Parameters":[null,7]}`,
		`{"Parameters":[{"Name":"Other","AllowableValues":["ForceOff"]}]}`, `{"parameters":[{"Name":"ResetType"}]}`)
	f.Fuzz(func(t *testing.T, b []byte) {
		o, plain, ok := decoded(t, b)
		if !ok {
			return
		}
		for _, kind := range listedTypes(o) {
			found := false
			for _, p := range plain["Parameters"].([]any) {
				p, _ := p.(map[string]any)
				values, _ := p["AllowableValues"].([]any)
				found = found || p["Name"] == "ResetType" && (slices.Contains(values, any(string(kind))) || slices.Contains(values, nil))
			}
			assert.True(t, found, "%q", kind)
		}
	})
}

// FuzzCollection feeds the decoder anything: it gives every member once, or an error.
func FuzzCollection(f *testing.F) {
	seed(f, "systems",
		`{"Members":[{"@odata.id":"/a"},{"@odata.id":"@elsewhere/"}]}`, `{"Members":[{}]}`, `{"Members":[7]}`, `{"Members":null}`, `{}`,
		`{"Members":[{"@odata.id":"/a"}],"Members@odata.count":2}`, `{"Members":[],"Members@odata.nextLink":"/again"}`,
		`{"Members":[{"@odata.id":"/a"},{"@odata.id":"/a/"},{"@odata.id":"/b"}],"Members@odata.count":3}`)
	f.Fuzz(func(t *testing.T, b []byte) {
		o, plain, ok := decoded(t, b)
		if !ok {
			return
		}
		pages := 0
		all, err := members(func(string) (object, error) {
			pages++
			return o, nil
		}, "/x")
		assert.LessOrEqual(t, pages, maxPages)
		if err != nil {
			return
		}
		items, _ := plain["Members"].([]any)
		listed := map[string]bool{}
		for _, m := range items {
			listed[strings.TrimSuffix(m.(map[string]any)["@odata.id"].(string), "/")] = true
		}
		assert.Len(t, all, len(listed))
		assert.LessOrEqual(t, len(all), maxMembers)
		for _, uri := range all {
			assert.True(t, strings.HasPrefix(uri, "/"))
			assert.LessOrEqual(t, len(uri), maxURI)
		}
	})
}

// FuzzManager feeds what is told of a BMC anything: what is kept is bounded,
// printable text.
func FuzzManager(f *testing.F) {
	seed(f, "manager", `{"Model":7,"DateTime":"soon","Size":4e444}`, `{"Model":"a\u0000b","FirmwareVersion":"\n"}`, `{"Links":{"ManagedBy":[{"@odata.id":"/m"}]}}`)
	f.Fuzz(func(t *testing.T, b []byte) {
		o, _, ok := decoded(t, b)
		if !ok {
			return
		}
		for _, name := range []string{"Model", "FirmwareVersion", "Manufacturer", "DateTime", "SerialNumber"} {
			s := o.text(name)
			assert.LessOrEqual(t, len(s), maxIdentity)
			assert.True(t, utf8.ValidString(s))
			assert.False(t, strings.ContainsFunc(s, unicode.IsControl))
		}
		clock(o, http.Header{})
		_, err := o.object("Links").links("ManagedBy")
		var typed *bmc.KindError
		assert.True(t, err == nil || errors.As(err, &typed))
	})
}

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
		req := must.Do(http.NewRequestWithContext(t.Context(), methods[int(method)%len(methods)], "http://bmc/redfish/v1/Systems/1", nil))(t)
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
	e := must.Do(bmc.ParseEndpoint("redfish+http://bmc/redfish/v1/Systems/1"))(t)
	c := must.Do(New(bmc.Device{Endpoint: e}, bmc.Timing{}))(t)
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
