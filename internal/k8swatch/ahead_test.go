package k8swatch

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// What is the same for all targets is asked once for those who wait for it, whatever the target.
func TestSameQuestionsShareOneRequest(t *testing.T) {
	const many = 20
	for name, c := range map[string]struct {
		ask      func(context.Context, *Cluster) error
		key, got string
	}{
		"the checks of a namespace": {
			ask: func(ctx context.Context, k *Cluster) error {
				_, err := (&looker{c: k}).checksNow(ctx, false, "ns")
				return err
			},
			key: fmt.Sprintf("checks %s ns", client.CheckGVR), got: `{"kind":"List","apiVersion":"machine.openshift.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[]}`,
		},
		"the leader of a controller": {
			ask: func(ctx context.Context, k *Cluster) error {
				_, err := (&looker{c: k}).readLeader(ctx, checkLeader)
				return err
			},
			key: "leader " + checkLeader,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			k := served(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				if c.got == "" {
					status(w, http.StatusNotFound, "NotFound", checkLeader)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprint(w, c.got)
			})
			k.shared.Patience = time.Hour
			var g sync.WaitGroup
			began, ends := make(chan struct{}), make(chan struct{})
			g.Go(func() { // a read of somebody who asked before
				_, err := client.ReadShared(t.Context(), k.shared, c.key, func(context.Context) (string, error) {
					close(began)
					<-ends
					return "", nil
				})
				assert.NoError(t, err)
			})
			<-began
			for range many {
				g.Go(func() { assert.NoError(t, c.ask(t.Context(), k)) })
			}
			until(t, time.Minute, "all that ask", func() bool { return k.shared.Waiting(c.key) == many })
			require.Zero(t, requests.Load())
			close(ends)
			g.Wait()
			assert.EqualValues(t, 1, requests.Load())
		})
	}
}

// More checks of a namespace than a look reads, or larger ones, make no look fail: whoever wrote them would keep all Machines there
// from being fenced. As one that was not read may ask its own controller, they count while that one is alive.
func TestTooManyChecksFailNoLook(t *testing.T) { // I22
	for name, body := range map[string]string{
		"too many":  `{"kind":"List","apiVersion":"machine.openshift.io/v1beta1","metadata":{"resourceVersion":"7","continue":"more"},"items":[]}`,
		"too large": `{"kind":"List","apiVersion":"machine.openshift.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[{"kind":"` + strings.Repeat("x", client.MaxBody) + `"}]}`,
	} {
		for _, alive := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", its controller alive ", alive), func(t *testing.T) {
				c := served(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					switch {
					case strings.HasSuffix(r.URL.Path, "/machinehealthchecks"):
						_, _ = fmt.Fprint(w, body)
					case strings.HasSuffix(r.URL.Path, "/"+checkLeader) && alive:
						_, _ = fmt.Fprintf(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":%q,"namespace":"openshift-machine-api","uid":"u","resourceVersion":"5"},"spec":{"holderIdentity":"mhc-0","leaseDurationSeconds":120,"renewTime":%q}}`,
							checkLeader, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
					default:
						status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
					}
				})
				l := &looker{c: c, work: c.work.API(), manage: c.manage.API(), run: remediate.Run{Target: remediate.Target{Namespace: "ns", Machine: "m", MachineAPI: policy.OpenShiftMachineAPI}}}
				l.look.FreshMachine = &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m"}
				l.ahead.checks, l.ahead.checksErr = l.checksNow(t.Context(), false, "ns")
				who, err := l.leader(t.Context())
				require.NoError(t, err)
				assert.Equal(t, alive, who != "", who)
			})
		}
	}
}
