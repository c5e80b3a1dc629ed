package write

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/must"
)

// Whoever tells what fenced did must know whether it did anything: an object that has changed, also in the
// moment of the write, is left alone.
func TestHandoversSayWhetherTheyWrote(t *testing.T) {
	o := request.Object{APIVersion: "example.com/v1", Kind: "Reboot", Namespace: "ns", Name: "r", UID: "u", Mark: "store/east/r-1"}
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
			h := handoversAt(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet && c.refuses != 0 {
					k8stest.Status(w, c.refuses, map[int]string{409: "Conflict", 404: "NotFound"}[c.refuses], o.Name)
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
			})
			for i, write := range []func() (bool, error){
				func() (bool, error) { return h.TimeOut(t.Context(), o) },
				func() (bool, error) { return h.Delay(t.Context(), o) },
				func() (bool, error) { return h.Delete(t.Context(), o, &policy.Request{}) },
			} {
				assert.Equal(t, c.wrote[i], must.Do(write())(t), i)
			}
		})
	}
}

// A template that does not exist limits nothing; one that cannot be read may limit everything.
func TestTemplateAttempts(t *testing.T) {
	const path = "/apis/fenced.io/v1alpha1/namespaces/ns/fencedremediationtemplates/power"
	for name, c := range map[string]struct {
		spec  string // of the template
		code  int    // the answer, if there is no template
		want  int
		fails bool
	}{
		"no retry":       {spec: `{"template":{"spec":{"retryLimit":0}}}`, want: 1},
		"two retries":    {spec: `{"template":{"spec":{"retryLimit":2}}}`, want: 3},
		"no limit":       {spec: `{"template":{"spec":{}}}`},
		"no number":      {spec: `{"template":{"spec":{"retryLimit":"2"}}}`, fails: true},
		"does not exist": {code: http.StatusNotFound},
		"is forbidden":   {code: http.StatusForbidden, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			requests := handoversAt(t, func(w http.ResponseWriter, r *http.Request) {
				switch w.Header().Set("Content-Type", "application/json"); {
				case r.URL.Path == "/apis/fenced.io":
					_, _ = fmt.Fprint(w, `{"kind":"APIGroup","apiVersion":"v1","name":"fenced.io","versions":[{"groupVersion":"fenced.io/v1alpha1","version":"v1alpha1"}]}`)
				case r.URL.Path == "/apis/fenced.io/v1alpha1":
					_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"fenced.io/v1alpha1","resources":[
						{"name":"fencedremediationtemplates","kind":"FencedRemediationTemplate","namespaced":true}]}`)
				case r.URL.Path != path || c.code != 0:
					k8stest.Status(w, max(c.code, http.StatusForbidden), strings.ReplaceAll(http.StatusText(max(c.code, http.StatusForbidden)), " ", ""), "power")
				default:
					_, _ = fmt.Fprintf(w, `{"kind":"FencedRemediationTemplate","apiVersion":"fenced.io/v1alpha1","spec":%s,
						"metadata":{"namespace":"ns","name":"power","uid":"u","resourceVersion":"7"}}`, c.spec)
				}
			})
			template := policy.Template{APIVersion: policy.FencedAPI, Kind: policy.FencedRemediationKind + "Template", Namespace: "ns", Name: "power"}
			for _, check := range []policy.Check{
				{Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, SelectsNodes: true},
				{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns"},
			} {
				got, err := requests.TemplateAttempts(t.Context(), &check, template, remediate.Target{Node: "n"})
				assert.Equal(t, c.fails, err != nil, err)
				if !c.fails {
					assert.Equal(t, c.want, got)
				}
			}
		})
	}
	none := handoversAt(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
	})
	_, err := none.TemplateAttempts(t.Context(), &policy.Check{SelectsNodes: true}, policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Name: "power"}, remediate.Target{})
	require.Error(t, err, "nobody knows what is installed")
}
