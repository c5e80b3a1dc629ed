package api

import (
	"errors"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// auditOf reads what a client gets, and its error.
func auditOf(t *testing.T, d *fake, q audit.Query) (lines []wire.AuditLine, err error) {
	t.Helper()
	for l, err := range New(serve(t, d, Roles{})).Audit(t.Context(), q) {
		if err != nil {
			return lines, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func TestAuditGoesOverTheSocket(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 1000, time.UTC)
	d := &fake{audit: []wire.AuditLine{
		{Entry: &audit.Entry{Seq: 7, At: noon, Type: "Started", Gates: []audit.Gate{{Name: "g", Pass: true}}, Message: strings.Repeat("<x>", 300)}},
		{Break: &audit.Break{After: 7, Next: 9, What: "entry 8 is missing"}},
		{Entry: &audit.Entry{Seq: 9, At: noon, Type: audit.Opened, Origin: &audit.Origin{Version: "1"}}},
	}}
	q := audit.Query{Since: noon, Until: noon.Add(time.Hour), Cluster: "prod", Node: "n-1", Run: "r-1"}
	lines, err := auditOf(t, d, q)
	require.NoError(t, err)
	assert.Equal(t, d.audit, lines)
	assert.Equal(t, q, d.query)

	lines, err = auditOf(t, &fake{}, audit.Query{})
	require.NoError(t, err)
	assert.Empty(t, lines)
}

// What is not whole never looks as if it were.
func TestCutAuditIsToldFromAWholeOne(t *testing.T) {
	one := []wire.AuditLine{{Entry: &audit.Entry{Seq: 1}}}
	lines, err := auditOf(t, &fake{audit: one, err: errors.New("the disk fails")}, audit.Query{})
	require.ErrorIs(t, err, ErrCutAudit)
	require.ErrorContains(t, err, "the disk fails")
	assert.Equal(t, one, lines, "what was read before is shown")

	s := NewServer(&fake{audit: one, hangs: true}, roles, log.New(t.Output(), "", 0))
	s.auditReads.most = time.Millisecond
	code, body := requestOf(t, s, viewer, http.MethodGet, "/v1/audit", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, `{"end":{"entries":1,"breaks":0,"cut":"reading it took longer than 1ms: ask for a shorter time"}}`)

	for _, body := range []string{"", `{"entry":{"seq":1,"at":"2026-01-01T00:00:00Z","type":"x"}}` + "\n"} {
		require.ErrorIs(t, readAudit(strings.NewReader(body), func(wire.AuditLine) bool { return true }), ErrCutAudit, body)
	}
	long := `{"entry":{"message":"` + strings.Repeat("x", maxAuditLine) + `"}}`
	require.ErrorIs(t, readAudit(strings.NewReader(long), func(wire.AuditLine) bool { return true }), ErrCutAudit)
}

func TestAuditNeedsTimes(t *testing.T) {
	for _, q := range []string{"since=yesterday", "until=12:00"} {
		code, body := request(t, &fake{}, roles, viewer, http.MethodGet, "/v1/audit?"+q, "")
		assert.Equal(t, http.StatusBadRequest, code)
		assert.Contains(t, body, "is not a time")
	}
	for _, q := range []string{"", "?until=2026-01-01T00:00:00Z", "?since=2026-01-01T00:00:00Z&until=2026-01-01T00:00:00Z", "?since=2199-01-01T00:00:00Z", "?since=x", "?since=2026-01-01T00:00:00Z&until=x"} {
		code, _ := request(t, &fake{}, roles, viewer, http.MethodGet, "/v1/report"+q, "")
		assert.Equal(t, http.StatusBadRequest, code, q)
	}
}

func TestReportIsAskedFor(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := must.Do(New(serve(t, &fake{}, Roles{})).Report(t.Context(), "prod", since))(t)
	assert.Equal(t, "prod", r.Value.Cluster)
	assert.Equal(t, since, r.Value.Since)
	assert.WithinDuration(t, time.Now(), r.Value.Until, time.Hour)

	_, body := request(t, &fake{}, roles, viewer, http.MethodGet, "/v1/report?since=2026-01-01T00:00:00Z&until=2199-01-01T00:00:00Z", "")
	assert.NotContains(t, body, "2199", "nothing covers a time to come")
}

// Few have the log read at a time. Operators and admins wait for no viewer.
func TestAuditReadsAreFew(t *testing.T) {
	s := NewServer(&fake{}, roles, log.New(t.Output(), "", 0))
	for range maxAuditReads {
		must.Do(s.auditReads.begin(wire.Viewer))(t)
	}
	code, body := requestOf(t, s, viewer, http.MethodGet, "/v1/audit", "")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, CodeTooManyReads)
	const report = "/v1/report?since=2026-01-01T00:00:00Z"
	code, _ = requestOf(t, s, viewer, http.MethodGet, report, "")
	assert.Equal(t, http.StatusServiceUnavailable, code, "a report reads it, too")
	for range maxAuditReads + 1 { // each gives its place back
		for _, path := range []string{"/v1/audit", report} {
			code, _ = requestOf(t, s, oper, http.MethodGet, path, "")
			assert.Equal(t, http.StatusOK, code)
		}
	}
}
