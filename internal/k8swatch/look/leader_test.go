package look

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Which controllers of OpenShift's Machine API would act on a Machine. A row that was
// refused before fenced asked about the very target says in safe why no other
// remediator acts on the target, although one is alive.
func TestRivalsOfAMachine(t *testing.T) { // I22
	deletes := policy.Check{Strategy: policy.DeleteMachines}
	cycles := policy.Check{Strategy: policy.PowerCycleHosts}
	ours := policy.Check{Strategy: policy.CreateRequests, Template: &policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate"}}
	theirs := policy.Check{Strategy: policy.CreateRequests, Template: &policy.Template{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1"}}
	plain := policy.Machine{Phase: "Running"}
	requested := policy.Machine{Phase: "Running", ExternalRemediationRequested: true}
	deleting := policy.Machine{Phase: "Deleting", Deleting: true}
	failed := policy.Machine{Phase: "Failed"}
	both, controller, actuator := []string{checkLeader, powerCycleLeader}, []string{checkLeader}, []string{powerCycleLeader}
	of := func(c ...policy.Check) []policy.Check { return c }

	for _, c := range []struct {
		name    string
		machine *policy.Machine
		checks  []policy.Check // that cover the Machine and are not paused
		alive   []string
		want    []string
		safe    string
	}{
		// Refused before, allowed now.
		{"a stock cluster, no check covers the Machine", &plain, nil, both, nil,
			"the actuator acts on a Machine with the annotation or one that is deleted; without a check the controller writes no annotation and deletes nothing"},
		{"a power cycle, a check with the bare-metal strategy whose controller is not alive", &plain, of(cycles), actuator, nil,
			"nobody writes the annotation that the actuator waits for; the Lease of the controller is read again before each command"},
		{"a check that asks fenced, on a stock cluster", &plain, of(ours), both, nil,
			"the controller only creates requests of a kind that fenced carries out; the actuator is not asked"},
		{"a Machine without a Node, no check covers it", &policy.Machine{Phase: "Provisioned"}, nil, both, nil,
			"the actuator switches a host only while it is provisioned, and fenced refuses a host that is not provisioned"},
		{"a Machine that failed, no check covers it", &failed, nil, both, nil, "the controller deletes only what a check covers"},
		{"a check that deletes, whose controller is not alive", &plain, of(deletes), actuator, nil,
			"nobody deletes the Machine, so the actuator does not deprovision its host"},
		// Allowed before and now.
		{"nobody is alive", &requested, of(cycles, deletes, theirs), nil, nil, "nobody acts"},
		{"the bare-metal strategy, and no actuator", &plain, of(cycles), controller, nil, "the controller only annotates the Machine, and nobody follows"},
		{"annotated, and no actuator", &requested, of(cycles), controller, nil, "nobody follows the annotation; fenced removes it when it is done"},
		{"the Machine is gone", nil, of(deletes), both, nil, "there is nothing to act on"},
		// Refused.
		{"annotated, whoever did it", &requested, nil, both, actuator, ""},
		{"annotated, its check is paused by now", &requested, nil, actuator, actuator, ""},
		{"deprovisioned by the actuator", &deleting, nil, actuator, actuator, ""},
		{"the annotation may come at any moment", &plain, of(cycles), both, actuator, ""},
		{"a check deletes", &plain, of(deletes), both, controller, ""},
		{"a check asks another remediator", &plain, of(theirs), both, controller, ""},
		{"one check asks fenced, another deletes", &plain, of(ours, deletes), both, controller, ""},
		{"one check deletes, another power-cycles", &plain, of(cycles, deletes), both, both, ""},
		{"a Failed Machine is deleted even with the bare-metal strategy", &failed, of(cycles), both, controller, ""},
		{"a Failed Machine that is annotated", &requested, of(cycles), both, actuator, ""},
	} {
		who, err := machineRivals(c.machine, c.checks, func(name string) (string, error) {
			if slices.Contains(c.alive, name) {
				return name, nil
			}
			return "", nil
		})
		require.NoError(t, err, c.name)
		assert.Equal(t, strings.Join(c.want, "; "), who, c.name)
		assert.Equal(t, c.want == nil, c.safe != "", "%s: what is allowed says why nobody else acts", c.name)
	}
}

// A leader Lease that cannot be read, and whose holder might act, is no permission.
func TestUnreadLeaderIsNoAbsence(t *testing.T) { // I22
	cycles, deletes := policy.Check{Strategy: policy.PowerCycleHosts}, policy.Check{Strategy: policy.DeleteMachines}
	broken := errors.New("no answer")
	for name, c := range map[string]struct {
		machine policy.Machine
		checks  []policy.Check
		unread  string
		fails   bool
	}{
		"the controller of a check that deletes":        {policy.Machine{}, []policy.Check{deletes}, checkLeader, true},
		"the controller of a check that annotates":      {policy.Machine{}, []policy.Check{cycles}, checkLeader, true},
		"the actuator, which may be asked":              {policy.Machine{}, []policy.Check{cycles}, powerCycleLeader, true},
		"the actuator of an annotated Machine":          {policy.Machine{ExternalRemediationRequested: true}, nil, powerCycleLeader, true},
		"the actuator of a Machine that is deleted":     {policy.Machine{Deleting: true}, nil, powerCycleLeader, true},
		"the actuator, whose business the host is not":  {policy.Machine{}, nil, powerCycleLeader, false},
		"the controller, whose checks do not cover it":  {policy.Machine{}, nil, checkLeader, false},
		"the actuator, where a check deletes a Machine": {policy.Machine{}, []policy.Check{deletes}, powerCycleLeader, false},
	} {
		_, err := machineRivals(&c.machine, c.checks, func(name string) (string, error) {
			if name == c.unread {
				return "", broken
			}
			return name, nil
		})
		assert.Equal(t, c.fails, err != nil, name)
	}
}

func TestUnreadMachineHidesNoCheck(t *testing.T) {
	l := &looker{r: beside(t), run: remediate.Run{Target: remediate.Target{Machine: "m", Namespace: "ns"}}}
	_, err := l.leader(t.Context())
	require.ErrorContains(t, err, "could not be read")
}

// Anybody may have a Lease of a manager's name in a namespace of their own. It counts where the manager is installed, or where
// the administrator says that it is, and a refusal names it. // I22
func TestLeaderCountsOnlyWhereItIsInstalled(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	leases := map[string]*coordinationv1.Lease{}
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/leases") {
			k8stest.Status(w, http.StatusNotFound, "NotFound", "x")
			return
		}
		_, namespace, _ := strings.Cut(strings.TrimSuffix(r.URL.Path, "/leases"), "/namespaces/")
		list := coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}}
		list.ResourceVersion = "9"
		mu.Lock()
		for ns, l := range leases {
			if namespace == "" || namespace == ns {
				list.Items = append(list.Items, *l)
			}
		}
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(list))
	})
	alive := func() remediate.Answer {
		got, err := c.ControllerAlive(t.Context(), policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.ClusterAPIV1Beta2})
		require.NoError(t, err)
		return got
	}
	put := func(namespace string) {
		holder, now, seconds := "nobody", metav1.NowMicro(), int32(1<<31-1)
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterAPILeader, UID: "u", ResourceVersion: "1"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &seconds}}
		mu.Lock()
		defer mu.Unlock()
		leases[namespace] = l
	}
	put("tenant")
	assert.Equal(t, remediate.No, alive(), "a tenant's Lease")
	found, err := c.Leaders.elsewhere(t.Context(), c.Servers.Manage.API(), clusterAPILeader)
	require.NoError(t, err)
	assert.Equal(t, []string{"tenant"}, found, "which is told")
	c.Leaders.Namespaces = []string{"tenant"}
	assert.Equal(t, remediate.Yes, alive(), "the administrator names it")
	c.Leaders.Namespaces = nil
	put("capi-system")
	who, err := c.Leaders.in(t.Context(), c.Servers.Manage.API(), clusterAPILeader)
	require.NoError(t, err)
	assert.Equal(t, "nobody holds the Lease capi-system/"+clusterAPILeader, who)
}
