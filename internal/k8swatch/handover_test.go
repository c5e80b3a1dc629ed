package k8swatch

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
)

// Whoever tells what fenced did must know whether it did anything: an object that has changed, also in the
// moment of the write, is left alone.
func TestHandoversSayWhetherTheyWrote(t *testing.T) {
	o := escalate.Object{APIVersion: "example.com/v1", Kind: "Reboot", Namespace: "ns", Name: "r", UID: "u", Mark: "store/east/r-1"}
	for name, c := range map[string]struct {
		annotations, status string
		refuses             int // the answer to a write
		wrote               []bool
	}{
		"as it was read":       {wrote: []bool{true, true, true}},
		"its remediator began": {status: `{"phase":"Running"}`, wrote: []bool{true, true, false}},
		"told before": {annotations: `,"remediation.medik8s.io/nhc-timed-out":"2026-01-01T00:00:00Z","remediation.medik8s.io/healthy-delay":"2026-01-01T00:00:00Z"`,
			wrote: []bool{false, false, true}},
		"changed in that moment": {refuses: http.StatusConflict, wrote: []bool{false, false, false}},
		"deleted in that moment": {refuses: http.StatusNotFound, wrote: []bool{false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewHandovers(served(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet && c.refuses != 0 {
					status(w, c.refuses, map[int]string{409: "Conflict", 404: "NotFound"}[c.refuses], o.Name)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				switch r.URL.Path {
				case "/apis/example.com":
					_, _ = fmt.Fprint(w, `{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}]}`)
				case "/apis/example.com/v1":
					_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[{"name":"reboots","kind":"Reboot","namespaced":true}]}`)
				default:
					text := c.status
					if text == "" {
						text = "{}"
					}
					_, _ = fmt.Fprintf(w, `{"kind":"Reboot","apiVersion":"example.com/v1","status":%s,
						"metadata":{"namespace":"ns","name":"r","uid":"u","resourceVersion":"7","annotations":{"fenced.io/made-by":%q%s}}}`, text, o.Mark, c.annotations)
				}
			}))
			for i, write := range []func() (bool, error){
				func() (bool, error) { return h.TimeOut(t.Context(), o) },
				func() (bool, error) { return h.Delay(t.Context(), o) },
				func() (bool, error) { return h.Delete(t.Context(), o, &policy.Request{}) },
			} {
				wrote, err := write()
				require.NoError(t, err)
				assert.Equal(t, c.wrote[i], wrote, i)
			}
		})
	}
}
