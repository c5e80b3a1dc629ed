package packaging_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

// values are those of the chart for the pod of TestPodOfTheChartRuns.
const values = `mode: none
daemon:
  enabled: true
  image: {repository: localhost/fenced}
  config:
    clusters: [{name: prod, kubeconfig: prod.kubeconfig, mode: observe}]
  secretFiles:
    - {path: prod.kubeconfig, secret: fenced-files, key: prod.kubeconfig}
    - {path: credentials/bmc, secret: fenced-files, key: bmc}
  hosts:
    rack.yaml: |
      hosts: [{node: n, bmc: {address: "ipmi://192.0.2.13", username: u, passwordFile: /etc/fenced/credentials/bmc}}]
`

// podDir leads the program that runs in a network of its own to the files of the test.
const podDir = "FENCED_TEST_POD"

// TestPodOfTheChartRuns lets crun run the container of the chart's Deployment, made of the image and of the rendered pod as a kubelet has it made: user,
// capabilities, read-only root, and each mount from a ConfigMap, a Secret, a claim and an emptyDir. The daemon gets ready by the probe of the
// pod, has read what is mounted, and ends by SIGTERM. What a kubelet does beside, no kubelet does here: the seccomp profile, cgroups, restarts.
func TestPodOfTheChartRuns(t *testing.T) {
	if dir := os.Getenv(podDir); dir != "" {
		podRuns(t, dir)
		return
	}
	t.Parallel()
	bundle := imageBundle(t)
	need(t, "crun", "crun")
	need(t, "curl", "curl")
	need(t, "ip", "iproute2")
	dir := t.TempDir()
	sh(t, `chmod 755 "$1"; mkdir "$1/bundle"; cp "$2/config.json" "$1/bundle/"; cp -R --preserve=all "$2/rootfs" "$1/bundle/"`, dir, bundle)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "values.yaml"), []byte(values), 0o600))
	helm := filepath.Join(must.Do(rig.Helm(t.Context(), os.Stderr))(t), "helm")
	rendered := output(t, helm, "template", "fenced", "../configs/chart", "--namespace", "fenced", "--values", filepath.Join(dir, "values.yaml"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rendered.yaml"), []byte(rendered), 0o600))

	// The port of the probe is the chart's, and may be taken on this machine. crun takes no mixture of both versions of cgroups. The container ends
	// with the namespace of processes, whatever ends the test.
	const inside = `ip link set lo up; mount --make-rprivate /; mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec "$0" "$@"`
	again := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", "--pid", "--mount-proc", "--kill-child", "--fork", "sh", "-ec", inside, must.Do(os.Executable())(t), "-test.run=^TestPodOfTheChartRuns$", "-test.count=1")
	again.Env = append(os.Environ(), podDir+"="+dir)
	again.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	text, err := again.CombinedOutput()
	require.NoError(t, err, "%s", text)
}

func podRuns(t *testing.T, dir string) {
	c := must.Do(rig.Start(t.Context(), rig.Options{StandIn: inMemory}))(t)
	t.Cleanup(c.Stop)
	kubeconfig := readFile(t, must.Do(c.Kubeconfig(rig.FencedUser))(t))
	config, pod := renderedPod(t, dir)
	secrets := map[string]map[string]string{"fenced-files": {"prod.kubeconfig": kubeconfig, "bmc": "calvin\n"}}
	container := pod.Containers[0]
	require.Len(t, pod.Containers, 1)
	writeSpec(t, filepath.Join(dir, "bundle"), pod, mountAll(t, filepath.Join(dir, "volumes"), pod, config, secrets))

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	crun := func(verb string, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "crun", append([]string{"--root", filepath.Join(dir, "crun"), "--cgroup-manager=disabled", verb}, args...)...)
	}
	log := must.Do(os.Create(filepath.Join(dir, "log")))(t)
	defer log.Close()
	daemon := crun("run", "--bundle", filepath.Join(dir, "bundle"), "pod")
	daemon.Stdout, daemon.Stderr = log, log
	require.NoError(t, daemon.Start())
	var ended error
	over := make(chan struct{})
	go func() { defer close(over); ended = daemon.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(read(t, dir, "log"))
		}
	})
	get := func(path string) func() bool {
		return func() bool {
			select {
			case <-over:
				require.FailNow(t, "the container has ended", "%v", ended)
			default:
			}
			return exec.CommandContext(ctx, "curl", "-fsS", "--max-time", "10", "http://127.0.0.1:"+probePort(t, &container)+path).Run() == nil
		}
	}
	require.Equal(t, container.StartupProbe.HTTPGet, container.LivenessProbe.HTTPGet)
	poll(ctx, t, get(container.StartupProbe.HTTPGet.Path), "the probe of the pod does not succeed")
	poll(ctx, t, get("/readyz"), "the daemon does not see the cluster of the kubeconfig that is mounted")

	inPod := func(args ...string) (string, error) { // as the pod's user, as kubectl does
		user := fmt.Sprintf("%d:%d", *pod.SecurityContext.RunAsUser, *pod.SecurityContext.RunAsGroup)
		text, err := crun("exec", append([]string{"--user", user, "pod"}, args...)...).CombinedOutput()
		return string(text), err
	}
	status, _ := inPod("/usr/bin/fencectl", "status", "-o", "wide") // the exit status tells of the BMC that does not answer
	assert.Contains(t, status, "prod", "fenced.yaml of the ConfigMap")
	poll(ctx, t, func() bool {
		list, _ := inPod("/usr/bin/fencectl", "bmc", "list")
		return strings.Contains(list, "192.0.2.13")
	}, "hosts.d of the ConfigMap is not read")
	said, err := inPod("/usr/bin/fenced", "--check-config")
	require.NoError(t, err, said)
	assert.NotContains(t, strings.ToLower(said), "warn", "the modes of what is mounted")
	// What the daemon has of what root may do.
	var state struct{ Pid int }
	require.NoError(t, json.Unmarshal(must.Do(crun("state", "pod").Output())(t), &state))
	may := readFile(t, fmt.Sprintf("/proc/%d/status", state.Pid))
	for _, line := range []string{"Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		assert.Contains(t, may, line+"\n")
	}
	_, err = os.Stat(filepath.Join(dir, "volumes/state/state.db"))
	require.NoError(t, err, "the state is in the claim")

	require.NoError(t, crun("kill", "pod", "TERM").Run())
	select {
	case <-over:
		require.NoError(t, ended)
	case <-ctx.Done():
		require.FailNow(t, "the daemon does not end")
	}
	stop := unitTime(t, readFile(t, "systemd/fenced.service"), `TimeoutStopSec=(\S+)`)
	assert.Equal(t, stop, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second)
}

// renderedPod are the ConfigMap and the pod of the Deployment that the chart renders.
func renderedPod(t *testing.T, dir string) (config corev1.ConfigMap, pod corev1.PodSpec) {
	t.Helper()
	for doc := range strings.SplitSeq("\n"+readFile(t, filepath.Join(dir, "rendered.yaml")), "\n---\n") {
		switch {
		case strings.Contains(doc, "\nkind: ConfigMap\n"):
			require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &config))
		case strings.Contains(doc, "\nkind: Deployment\n"):
			var d appsv1.Deployment
			require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &d))
			pod = d.Spec.Template.Spec
		}
	}
	require.NotEmpty(t, config.Data)
	require.NotEmpty(t, pod.Containers)
	return config, pod
}

// probePort is the number of the port that the probe names.
func probePort(t *testing.T, c *corev1.Container) string {
	t.Helper()
	i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == c.StartupProbe.HTTPGet.Port.String() })
	require.GreaterOrEqual(t, i, 0)
	return strconv.Itoa(int(c.Ports[i].ContainerPort))
}

// mountAll makes the volumes of a pod as a kubelet makes them, for a pod with an fsGroup, and returns the mounts of its container for a runtime.
func mountAll(t *testing.T, dir string, pod corev1.PodSpec, config corev1.ConfigMap, secrets map[string]map[string]string) (mounts []any) {
	t.Helper()
	group := int(*pod.SecurityContext.FSGroup)
	at := map[string]string{}
	for _, v := range pod.Volumes {
		path := filepath.Join(dir, v.Name)
		at[v.Name] = path
		files, mode, own := map[string]string{}, int32(0), os.FileMode(0o777)
		switch {
		case v.ConfigMap != nil:
			require.Equal(t, config.Name, v.ConfigMap.Name)
			files, mode = config.Data, *v.ConfigMap.DefaultMode
		case v.Secret != nil:
			files, mode = secrets[v.Secret.SecretName], *v.Secret.DefaultMode
			require.NotEmpty(t, files, v.Secret.SecretName)
		case v.HostPath != nil:
			at[v.Name] = v.HostPath.Path
			continue
		case v.PersistentVolumeClaim != nil:
			own = 0o770
		default:
			require.NotNil(t, v.EmptyDir, v.Name)
		}
		require.NoError(t, os.MkdirAll(path, 0o755))
		require.NoError(t, os.Chmod(path, own|os.ModeSetgid))
		require.NoError(t, os.Chown(path, 0, group))
		for name, text := range files {
			file := filepath.Join(path, name)
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			require.NoError(t, os.Chown(file, 0, group))
			require.NoError(t, os.Chmod(file, os.FileMode(mode)))
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		source := filepath.Join(at[m.Name], m.SubPath)
		_, err := os.Stat(source)
		require.NoError(t, err, m.MountPath)
		options := []string{"rbind", "rprivate", "rw"}
		if m.ReadOnly {
			options[2] = "ro"
		}
		mounts = append(mounts, map[string]any{"destination": m.MountPath, "source": source, "type": "bind", "options": options})
	}
	return mounts
}

// writeSpec changes what umoci made of the image's configuration into what the pod wants. It fails for what it does not know how to do.
func writeSpec(t *testing.T, bundle string, pod corev1.PodSpec, mounts []any) {
	t.Helper()
	asroot.Need(t, "run a container")
	type object = map[string]any
	var spec object
	path := filepath.Join(bundle, "config.json")
	require.NoError(t, json.Unmarshal([]byte(readFile(t, path)), &spec))
	c, s := pod.Containers[0], pod.Containers[0].SecurityContext
	require.Empty(t, slices.Concat(c.Command, c.Args), "the image says what runs")
	require.Empty(t, c.Env)
	require.Equal(t, []corev1.Capability{"ALL"}, s.Capabilities.Drop)
	require.Empty(t, s.Capabilities.Add)
	process := spec["process"].(object)
	process["terminal"], process["capabilities"], process["noNewPrivileges"] = false, object{}, !*s.AllowPrivilegeEscalation
	process["user"] = object{"uid": *pod.SecurityContext.RunAsUser, "gid": *pod.SecurityContext.RunAsGroup, "additionalGids": []int64{*pod.SecurityContext.FSGroup}}
	spec["root"].(object)["readonly"] = *s.ReadOnlyRootFilesystem
	linux := spec["linux"].(object)
	linux["namespaces"] = slices.DeleteFunc(linux["namespaces"].([]any), func(n any) bool { return n.(object)["type"] == "network" }) // the test has one
	delete(linux, "resources")
	// What is mounted over the volume of the image comes in its place; cgroups are the kubelet's.
	spec["mounts"] = append(slices.DeleteFunc(spec["mounts"].([]any), func(m any) bool {
		return slices.Contains([]any{"/sys/fs/cgroup", "/var/lib/fenced"}, m.(object)["destination"])
	}), mounts...)
	require.NoError(t, os.WriteFile(path, must.Do(json.Marshal(spec))(t), 0o600))
}
