package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/setup"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/quickstart"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// beginner is a person who follows a page on a host of his own. What only root, a package manager or systemd
// can do is done by a stand-in:
//
//   - sudo runs the command as whoever runs the test;
//   - dnf does nothing: the programs are built already;
//   - /etc/fenced is a directory of the test, and init and the daemon get it on their command lines;
//   - install and chgrp leave the group fenced away;
//   - systemctl enable --now fenced starts the daemon, with its state and socket in the same directory, and waits for
//     the socket, as systemd waits until the daemon is ready. packaging/fences_test.go has the real ones;
//   - ssh and scp reach a directory in place of another host, and k3s has no other command than kubectl.
type beginner struct {
	t      *testing.T
	scene  *scene.Scene
	dir    string
	places *strings.Replacer
}

// settle gives a beginner his host. kubeconfigs are the administrator's, by the name in the page; places are
// what the page calls otherwise, in pairs; set are keys that a daemon on loopback needs.
func settle(t *testing.T, s *scene.Scene, kubeconfigs map[string]string, set []string, places ...string) *beginner {
	t.Helper()
	b := &beginner{t: t, scene: s, dir: t.TempDir()}
	programs := must.Do(builds())(t)
	kubectl := must.Do(rig.Kubectl(t.Context(), os.Stderr))(t)
	for _, dir := range []string{"bin", "etc/credentials", "remote", "home"} {
		require.NoError(t, os.MkdirAll(filepath.Join(b.dir, dir), 0o700))
	}
	for name, from := range kubeconfigs {
		text := must.Do(os.ReadFile(from))(t)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(b.dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, name), text, 0o600))
	}
	flags := "--config " + b.dir + "/etc/fenced.yaml --set metrics.listen= --set control.group= --set state.path=" + b.dir + "/state.db --set control.socket=" + b.dir +
		"/sock --set control.pauseFile=" + b.dir + "/paused"
	for _, kv := range set {
		flags += " --set " + kv
	}
	for name, script := range map[string]string{
		"sudo":     `exec env "$@"`,
		"oc":       `exec kubectl "$@"`,
		"dnf":      `exit 0`,
		"kubectl":  `exec ` + kubectl + `/kubectl "$@"`,
		"k3s":      `[ "$1" = kubectl ] && shift && exec ` + kubectl + `/kubectl "$@"`,
		"fencectl": `case $1 in init) exec ` + programs.Fencectl + ` "$@" --output-dir ` + b.dir + `/etc;; *) exec ` + programs.Fencectl + ` --socket ` + b.dir + `/sock "$@";; esac`,
		"fenced":   `exec ` + programs.Fenced + ` "$@" ` + flags,
		"chgrp":    `[ "$1" = fenced ] || exec /bin/chgrp "$@"`,
		"install":  `[ "$1 $2" = "-g fenced" ] && shift 2; exec /usr/bin/install "$@"`,
		"systemctl": `[ "$*" = "enable --now fenced" ] || exit 1
			setsid ` + programs.Fenced + ` ` + flags + ` >>` + b.dir + `/log 2>&1 & echo $! >` + b.dir + `/pid
			until [ -S ` + b.dir + `/sock ]; do kill -0 "$(cat ` + b.dir + `/pid)" || exit 1; sleep 0.1; done`,
		"ssh": `shift; cd ` + b.dir + `/remote && exec sh -c "$*"`,
		"scp": `for last; do :; done
			at() { case $1 in *:*) echo "` + b.dir + `/remote/${1#*:}";; *) echo "$1";; esac; }
			while [ $# -gt 1 ]; do cp "$(at "$1")" "$(at "$last")"; shift; done`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, "bin", name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	b.places = strings.NewReplacer(append(places, "/etc/fenced", b.dir+"/etc")...)
	t.Cleanup(b.leave)
	return b
}

// leave ends the daemon that systemctl started.
func (b *beginner) leave() {
	if b.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(b.dir, "log"))
		b.t.Logf("the log of the daemon:\n%s", log[max(0, len(log)-8<<10):])
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "pid"))
	if err != nil {
		return // it was never started
	}
	pid := must.Do(strconv.Atoi(strings.TrimSpace(string(text))))(b.t)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// run types one command, and gives what it said and its exit status.
func (b *beginner) run(ctx context.Context, command string) (string, int) {
	b.t.Helper()
	command = b.places.Replace(command)
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "PATH="+b.dir+"/bin:"+os.Getenv("PATH"), "HOME="+b.dir+"/home", "KUBECONFIG=")
	cmd.Stdin = strings.NewReader(scene.Password + "\n")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); cmd.ProcessState == nil {
		require.NoError(b.t, err)
	}
	b.t.Logf("$ %s\n%s", command, said.String())
	return said.String(), cmd.ProcessState.ExitCode()
}

// follow types all commands of a page; each must succeed, and the last one is the first dry run.
func (b *beginner) follow(ctx context.Context, page string) (last string) {
	b.t.Helper()
	commands := must.Do(quickstart.Commands(page))(b.t)
	for _, c := range commands {
		said, exit := b.run(ctx, c)
		for exit == 3 && strings.HasSuffix(c, "--dry-run") && strings.Contains(said, "NotSynced") { // fenced has just been started
			require.NoError(b.t, ctx.Err(), said)
			said, exit = b.run(ctx, c)
		}
		require.Zero(b.t, exit, "%s: %s\n%s", page, c, said)
		last = said
	}
	require.Contains(b.t, commands[len(commands)-1], "--dry-run")
	return last
}

func admin(t *testing.T, c *rig.ControlPlane) string {
	t.Helper()
	return must.Do(c.Kubeconfig("an-administrator", "system:masters"))(t)
}

// withoutRights takes away the rights that a scene gives fenced: those of the quick start must do.
func withoutRights(ctx context.Context, t *testing.T, c *rig.ControlPlane) {
	t.Helper()
	rbac := c.Client().RbacV1()
	for _, name := range []string{"fenced", "fenced-management"} {
		require.NoError(t, rbac.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}))
		require.NoError(t, rbac.ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}))
	}
	require.NoError(t, rbac.RoleBindings(rig.Namespace).Delete(ctx, "fenced-secrets", metav1.DeleteOptions{}))
	require.NoError(t, rbac.ClusterRoles().Delete(ctx, "fenced-secrets", metav1.DeleteOptions{}))
	require.NoError(t, rbac.RoleBindings(metav1.NamespaceSystem).Delete(ctx, "fenced", metav1.DeleteOptions{}))
	require.NoError(t, rbac.Roles(metav1.NamespaceSystem).Delete(ctx, "fenced", metav1.DeleteOptions{}))
}

// A cluster without Machines, on which one beginner follows another, who has taken back the rights that he granted.
func TestQuickStartWithoutMachines(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Machines: scene.NoMachines, CRDs: []rig.CRDs{}, Workers: []scene.Spec{{Name: "worker-1", Protocol: scene.IPMI}, {Name: "worker-2"}}})
	withoutRights(within(t), t, s.Cluster)
	t.Run("a tenant has the namespace", func(t *testing.T) { initTakesNoNamespaceOfATenant(t, s) })
	// The quick start of a plain cluster: its very commands, against a real control plane.
	t.Run("plain", func(t *testing.T) {
		ctx := within(t)
		b := settle(t, s, map[string]string{"admin.conf": admin(t, s.Cluster)}, nil, "192.0.2.11", s.Worker("worker-1").IPMIAddress())
		require.Contains(t, b.follow(ctx, "plain"), "worker-1 would be fenced")
		b.requireRights(ctx, "prod.kubeconfig", map[string]bool{"delete nodes": true, "list nodes": true, "get secrets -A": false, "list secrets -A": false, "delete pods -A": false, "patch machines.cluster.x-k8s.io -A": false})
		b.removeRights(ctx)
		b.dropNamespace(ctx)
	})
	// The kubeconfig is on a server and names 127.0.0.1, and kubectl is there, too. The API server of the test
	// is no k3s, so that it is one is a matter of internal/setup.
	t.Run("k3s", func(t *testing.T) {
		ctx := within(t)
		b := settle(t, s, map[string]string{"remote/etc/rancher/k3s/k3s.yaml": admin(t, s.Cluster)}, nil,
			"192.0.2.11", s.Worker("worker-1").IPMIAddress(), "https://192.0.2.10:6443", s.Cluster.URL(), "s/127.0.0.1/192.0.2.10/", "s/127.0.0.1/127.0.0.1/",
			" /etc/rancher", " etc/rancher")
		require.Contains(t, b.follow(ctx, "k3s-rke2"), "worker-1 would be fenced")
		require.NoFileExists(t, b.dir+"/remote/prod.kubeconfig", "its token does not expire")
	})
}

// OpenShift on bare metal, with its controllers alive and a check of its own on one worker: init says
// where they would act, and fenced refuses just there.
func TestQuickStartOpenShift(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Checks: []rig.Check{}, CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.ClusterVersions}, Workers: []scene.Spec{
		{Name: "worker-1", Protocol: scene.IPMI, Metal3: true, Pool: "racks"}, {Name: "theirs", Protocol: scene.IPMI, Metal3: true}}})
	ctx := within(t)
	withoutRights(ctx, t, s.Cluster)
	t.Run("without the right to look", func(t *testing.T) { initSaysWhatItDidNotSee(t, s) })
	stockOpenShift(ctx, t, s)
	require.NoError(t, s.Management.Apply(ctx, documented(t, "openshift")))
	b := settle(t, s, map[string]string{"admin.conf": admin(t, s.Cluster)}, []string{"bmcNetworks=127.0.0.0/8"})
	require.Contains(t, b.follow(ctx, "openshift"), "worker-1 would be fenced")

	r := b.lookAgain(ctx, "admin.conf")
	require.Len(t, r.Controllers, 3)
	for _, k := range r.Controllers {
		require.Equal(t, k.Lease != "fenced", k.Holder != "", "%s is alive; fenced itself holds its Lease only where it may act", k.Name)
	}
	require.Empty(t, nodeNamed(t, r, "worker-1").Contested)
	require.Contains(t, nodeNamed(t, r, "theirs").Contested, scene.ActuatorUser)
	require.Equal(t, "OpenShift", r.Distribution)
	said, exit := b.run(ctx, "sudo fencectl fence theirs --reason test --dry-run")
	require.Equal(t, 3, exit)
	require.Contains(t, said, "Contested")
	b.requireRights(ctx, "prod.kubeconfig", map[string]bool{"get secrets -A": false, "get secrets -n openshift-machine-api": true, "list secrets -n openshift-machine-api": false, "delete machines.machine.openshift.io -A": true, "list nodehealthchecks.remediation.medik8s.io -A": false})
}

// A Cluster API with a management cluster: each API server gets its part of the rights, and a kubeconfig of its own.
func TestQuickStartClusterAPI(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Machines: scene.ClusterAPI, Apart: true, Tokens: true, CRDs: []rig.CRDs{rig.CAPIv1beta2, rig.Metal3}, Workers: []scene.Spec{{Name: "worker-1", Protocol: scene.IPMI, Metal3: true}, {Name: "worker-2"}}})
	ctx := within(t)
	withoutRights(ctx, t, s.Cluster)
	withoutRights(ctx, t, s.Management)
	b := settle(t, s, map[string]string{"workload.conf": admin(t, s.Cluster), "management.conf": admin(t, s.Management)}, []string{"bmcNetworks=127.0.0.0/8"})
	require.Contains(t, b.follow(ctx, "cluster-api"), "worker-1 would be fenced")
	b.requireRights(ctx, "prod.kubeconfig", map[string]bool{"delete nodes": true, "get secrets -A": false})
	b.requireRights(ctx, "prod-management.kubeconfig", map[string]bool{"delete nodes": false, "list nodes": false, "get secrets -A": false, "get secrets -n openshift-machine-api": true, "list machines.cluster.x-k8s.io -A": true})
}

// With a kubeconfig that may not list everything, init says what it did not see and why it matters, and still writes
// files that the daemon takes. A second init leaves them alone.
func initSaysWhatItDidNotSee(t *testing.T, s *scene.Scene) {
	t.Helper()
	ctx := within(t)
	require.NoError(t, s.Cluster.Apply(ctx, []byte(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lists-nodes}
rules: [{apiGroups: [""], resources: [nodes, pods], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lists-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lists-nodes}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: a-beginner}]
`)))
	limited := must.Do(s.Cluster.Kubeconfig("a-beginner"))(t)
	b := settle(t, s, map[string]string{"admin.conf": admin(t, s.Cluster), "limited.conf": limited}, nil)
	said, exit := b.run(ctx, "sudo fencectl init --kubeconfig limited.conf")
	require.Equal(t, 2, exit)
	require.Regexp(t, `(?m)^MachineHealthCheck.machine.openshift.io: .*forbidden.*\n  which hosts other controllers remediate is not known`, said)
	require.Regexp(t, `(?m)^OpenShift's bare-metal actuator +not known`, said)
	require.Regexp(t, `(?m)^worker-1 .* not (asked|known)`, said)
	require.NoFileExists(t, b.dir+"/etc/policies.d/prod.yaml", "checks that were not seen may exist")
	said, exit = b.run(ctx, "sudo fencectl init --kubeconfig admin.conf")
	require.Equal(t, 7, exit, said)
	for _, c := range []string{"sudo sh /etc/fenced/prod-kubeconfig.sh admin.conf", "sudo fenced --check-config"} {
		said, exit = b.run(ctx, c)
		require.Zero(t, exit, "%s: %s", c, said)
	}
	b.removeRights(ctx)
	b.dropNamespace(ctx)
}

// requireRights asks the API server what the kubeconfig of fenced may do.
func (b *beginner) requireRights(ctx context.Context, kubeconfig string, rights map[string]bool) {
	b.t.Helper()
	for what, may := range rights {
		said, exit := b.run(ctx, "kubectl --kubeconfig /etc/fenced/"+kubeconfig+" auth can-i "+what)
		require.Equal(b.t, may, exit == 0, "%s may %s: %s", kubeconfig, what, said)
	}
}

// removal is the command of docs/upgrade.md that takes back what the script of init granted.
var removal = regexp.MustCompile(`(?m)^ +(sudo kubectl .+ -f /etc/fenced/prod-rbac\.yaml)$`)

// removeRights types it. Nothing of the manifest is left, and the API server refuses the kubeconfig of fenced, whose token does not
// expire; it remembers for seconds that it took the token.
func (b *beginner) removeRights(ctx context.Context) {
	b.t.Helper()
	root := must.Do(rig.Root())(b.t)
	page := must.Do(os.ReadFile(filepath.Join(root, "docs", "upgrade.md")))(b.t)
	commands := removal.FindAllStringSubmatch(string(page), -1)
	require.Len(b.t, commands, 1, "commands of docs/upgrade.md that delete the rights")
	said, exit := b.run(ctx, commands[0][1])
	require.Zero(b.t, exit, said)
	said, exit = b.run(ctx, "kubectl --kubeconfig admin.conf get --ignore-not-found -o name -f /etc/fenced/prod-rbac.yaml")
	require.Zero(b.t, exit, said)
	require.Empty(b.t, said, "left of the manifest")
	require.Eventually(b.t, func() bool {
		said, exit = b.run(ctx, "kubectl --kubeconfig /etc/fenced/prod.kubeconfig get --raw /api/v1/nodes")
		return exit != 0 && strings.Contains(said, "You must be logged in to the server")
	}, patience, time.Second, "the kubeconfig of fenced is refused (401)")
}

// dropNamespace deletes the namespace of fenced, which a script makes and the manifest does not name.
func (b *beginner) dropNamespace(ctx context.Context) {
	b.t.Helper()
	namespaces := b.scene.Cluster.Client().CoreV1().Namespaces()
	require.NoError(b.t, namespaces.Delete(ctx, "fenced", metav1.DeleteOptions{}))
	require.Eventually(b.t, func() bool {
		_, err := namespaces.Get(ctx, "fenced", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, 100*time.Millisecond, "the namespace is gone")
}

// looked is what init -o json says.
type looked struct {
	setup.Survey
	Distribution string
}

// lookAgain is init with --dry-run, beside the files that are there.
func (b *beginner) lookAgain(ctx context.Context, kubeconfig string) (r looked) {
	b.t.Helper()
	said, exit := b.run(ctx, "sudo fencectl init --dry-run -o json --kubeconfig "+kubeconfig)
	require.Zero(b.t, exit)
	require.NoError(b.t, json.Unmarshal([]byte(said), &r))
	return r
}

func nodeNamed(t *testing.T, r looked, name string) setup.Node {
	t.Helper()
	for _, n := range r.Nodes {
		if n.Name == name {
			return n
		}
	}
	require.Fail(t, "no Node", name)
	return setup.Node{}
}

// A tenant who made the namespace fenced first, with every mark that a person could look for, and who waits there for
// the token of fenced, gets nothing: neither init nor its script takes that namespace. One that the script made is known when it
// runs again.
func initTakesNoNamespaceOfATenant(t *testing.T, s *scene.Scene) {
	t.Helper()
	ctx := within(t)
	b := settle(t, s, map[string]string{"admin.conf": admin(t, s.Cluster)}, nil)
	said, exit := b.run(ctx, "sudo fencectl init --kubeconfig admin.conf")
	require.Zero(t, exit, said)
	require.NoError(t, s.Cluster.Apply(ctx, []byte(`apiVersion: v1
kind: Namespace
metadata: {name: fenced, labels: {app.kubernetes.io/managed-by: fencectl, app.kubernetes.io/part-of: fenced}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: fenced}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
`)))
	mint := func() (string, int) { return b.run(ctx, "sudo sh /etc/fenced/prod-kubeconfig.sh") }
	said, exit = mint()
	require.Equal(t, 1, exit)
	require.Contains(t, said, "the namespace fenced exists, and this script did not make it")
	said, exit = b.run(ctx, "sudo fencectl init --kubeconfig admin.conf --force")
	require.Equal(t, 7, exit)
	require.Contains(t, said, "the namespace fenced exists already")
	accounts := must.Do(s.Cluster.Client().CoreV1().ServiceAccounts("fenced").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=fenced"}))(t)
	require.Empty(t, accounts.Items)
	said, exit = b.run(ctx, "kubectl --kubeconfig admin.conf auth can-i delete nodes --as system:serviceaccount:fenced:fenced")
	require.Equal(t, 1, exit, said)

	said, exit = b.run(ctx, "sudo fencectl init --kubeconfig admin.conf --force --existing-namespace") // the administrator's word
	require.Zero(t, exit, said)
	said, exit = mint()
	require.Zero(t, exit, said)
	b.dropNamespace(ctx)
	for range 2 {
		said, exit = mint()
		require.Zero(t, exit, said)
	}
	said, exit = b.run(ctx, "sudo fencectl init --kubeconfig admin.conf --force")
	require.Zero(t, exit, said)
	b.removeRights(ctx)
	b.dropNamespace(ctx)
}
