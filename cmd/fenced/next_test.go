package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/wire"
)

// What keeps fenced from acting in a cluster has its code and the command that comes next.
func TestNextOfTheProblemOfACluster(t *testing.T) {
	for name, c := range map[string]struct {
		status     engine.ClusterStatus
		code, next string
	}{
		"clock":                {engine.ClusterStatus{ViewBad: "the clock", ViewReason: reason.ClockSkew}, "ClockSkew", "chronyc tracking"},
		"an old view":          {engine.ClusterStatus{ViewBad: "old", ViewReason: reason.ViewStale}, "ViewStale", "kubectl --kubeconfig /etc/kc get nodes "},
		"a watch fails":        {engine.ClusterStatus{ViewBad: "watch Node: forbidden"}, "", "kubectl --kubeconfig /etc/kc get nodes "},
		"another installation": {engine.ClusterStatus{Owner: true, Idle: "b holds it", HeldBy: "b holds it"}, "NotOwner", "systemctl disable --now fenced"},
		"an unknown holder":    {engine.ClusterStatus{Owner: true, Idle: "not known"}, "NotOwner", "kubectl --kubeconfig /etc/kc -n kube-system get lease fenced"},
		"no owner":             {engine.ClusterStatus{Idle: "no instance owns the cluster"}, "NotOwner", "etcdctl endpoint health"},
		"nothing":              {engine.ClusterStatus{Owner: true}, "", ""},
	} {
		c.status.Name = "prod"
		assert.Equal(t, c.code, clusterStatus(c.status, policy.Report{}).ProblemReason, name)
		next := nextOfProblem(&c.status, "/etc/kc")
		assert.Contains(t, next, c.next, name)
		assert.Equal(t, c.next == "", next == "", name)
	}
	assert.Contains(t, nextOfAudit("/var/log/fenced/audit.jsonl", fmt.Errorf("write: %w", syscall.ENOSPC)), "make room: df -h /var/log/fenced; ")
	assert.Contains(t, nextOfAudit("/var/log/fenced/audit.jsonl", errors.New("denied")), "ls -ld /var/log/fenced /var/log/fenced/audit.jsonl; ")
}

// An account that BMCs refuse is named once: the user, the BMC, where the password stands, and how to have the right one tried.
func TestRefusedAccountIsNamed(t *testing.T) {
	device := func(node, from string) wire.BMC {
		return wire.BMC{Cluster: "c", Node: node, Host: "c/" + node, Level: 1, Device: "ipmi://" + node, State: "failed", Reason: "BMCAuth", Problem: "refused", User: "admin", PasswordFrom: from}
	}
	file, secret, credential := device("n-1", "file /etc/p"), device("n-2", "Secret ns/bmc"), device("", "systemd credential bmc")
	privilege, machine := device("n-3", "file /etc/p"), device("", "file /etc/p")
	privilege.Reason, machine.Machine = "BMCPrivilege", "ns/m"
	for want, d := range map[string]wire.BMC{
		"write the password of user admin at ipmi://n-1 into /etc/p (no reload is needed), then fencectl bmc test n-1 --cluster c":                   file,
		"correct the user and the password of ipmi://n-2 (now admin): kubectl -n ns edit secret bmc; then fencectl bmc test n-2 --cluster c":         secret,
		"correct the password of user admin at ipmi:// in its systemd credential bmc, then systemctl restart fenced":                                 credential,
		"give user admin the right to switch the power at ipmi://n-3, then fencectl bmc test n-3 --cluster c":                                        privilege,
		"write the password of user admin at ipmi:// into /etc/p (no reload is needed), then fencectl bmc list shows it after the next health check": machine,
	} {
		assert.Equal(t, want, nextOfAccount(&d))
	}

	fleet := []wire.BMC{file, device("n-4", "file /etc/p"), secret, {Cluster: "c", Node: "n-5", Reason: "BMCUnreachable"}}
	list := refusedAccounts(fleet, nil)
	require.Len(t, list, 2)
	assert.Equal(t, []int{2, 1}, []int{list[0].Count, list[1].Count})
	list = refusedAccounts(fleet, []wire.NodeGap{{Reason: "BMCAuth", Node: "n-4"}})
	require.Len(t, list, 1, "a line about a Node says the other")
	assert.Equal(t, "n-2", list[0].Node)

	for i := range 3 * maxAccounts {
		fleet = append(fleet, device("n-2", fmt.Sprintf("Secret ns/bmc-%d", i)))
	}
	assert.Len(t, refusedAccounts(fleet, nil), maxAccounts, "a site whose accounts have expired does not fill the screen")

	told := wireBMC(&sweep.Result{User: strings.Repeat("x", 1<<20), PasswordFrom: "Secret ns/bmc"})
	assert.Less(t, len(nextOfAccount(&told)), 2*maxShownText, "who writes the Secret chooses the name")

	n := fleetOf(covering("n-1", true), []wire.BMC{file}, "n-1").nodes()
	assert.Equal(t, nextOfAccount(&file), n[0].Next)
	blocked := []wire.Blocked{{Cluster: "c", Node: "n-1", Reason: "BMCAuth", Next: "x"}, {Cluster: "c", Node: "n-5", Reason: "BMCUnreachable", Next: "x"}, {Cluster: "c", Node: "n-9", Reason: "BMCAuth", Next: "x"}}
	explainBlocked(blocked, fleet)
	assert.Equal(t, []string{nextOfAccount(&file), "x", "x"}, []string{blocked[0].Next, blocked[1].Next, blocked[2].Next})
}
