package k8swatch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

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
			requests := served(t, func(w http.ResponseWriter, r *http.Request) {
				switch w.Header().Set("Content-Type", "application/json"); {
				case r.URL.Path == "/apis/fenced.io":
					_, _ = fmt.Fprint(w, `{"kind":"APIGroup","apiVersion":"v1","name":"fenced.io","versions":[{"groupVersion":"fenced.io/v1alpha1","version":"v1alpha1"}]}`)
				case r.URL.Path == "/apis/fenced.io/v1alpha1":
					_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"fenced.io/v1alpha1","resources":[
						{"name":"fencedremediationtemplates","kind":"FencedRemediationTemplate","namespaced":true}]}`)
				case r.URL.Path != path || c.code != 0:
					status(w, max(c.code, http.StatusForbidden), strings.ReplaceAll(http.StatusText(max(c.code, http.StatusForbidden)), " ", ""), "power")
				default:
					_, _ = fmt.Fprintf(w, `{"kind":"FencedRemediationTemplate","apiVersion":"fenced.io/v1alpha1","spec":%s,
						"metadata":{"namespace":"ns","name":"power","uid":"u","resourceVersion":"7"}}`, c.spec)
				}
			}).Requests()
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
	none := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
	}).Requests()
	_, err := none.TemplateAttempts(t.Context(), &policy.Check{SelectsNodes: true}, policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Name: "power"}, remediate.Target{})
	require.Error(t, err, "nobody knows what is installed")
}
