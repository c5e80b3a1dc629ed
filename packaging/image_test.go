package packaging_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// inImage runs a command in the file system of the image: read-only, as the image's user and
// without a way to more, with the mounts that fenced.container and ironic-sidecar.yaml make.
const inImage = `set -eu
dir=$1 root=$2; shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount --bind "$dir/tree/etc/fenced" "$root/etc/fenced"
mount -o remount,bind,ro "$root/etc/fenced"
mount --bind "$dir/state" "$root/var/lib/fenced"
mount --bind "$dir/run" "$root/run/fenced"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
exec setpriv --no-new-privs chroot --userspec=65532:65532 --groups= "$root" "$@"`

// TestImageFences: the daemon in the file system of the image fences a hung node of a real control plane over IPMI.
func TestImageFences(t *testing.T) {
	t.Parallel()
	needBoot(t)
	dir, root := t.TempDir(), filepath.Join(imageBundle(t), "rootfs")
	sh(t, `umask 022; chmod 755 "$1"; mkdir -p "$1/tree/etc/fenced/hosts.d" "$1/tree/etc/fenced/credentials" "$1/state" "$1/run"`, dir)
	s := hungScene(t, nil)
	patchesIronic(t, s)
	configure(t, s, dir)
	sh(t, `cd "$1/tree/etc/fenced"; mv "$1/password" credentials/bmc
		sed -i 's,credential: bmc,passwordFile: /etc/fenced/credentials/bmc,' hosts.d/hosts.yaml; echo 'control: {group: ""}' >>fenced.yaml
		chown -R 0:65532 .; find . -type f -exec chmod 0640 {} +; chmod 0750 credentials
		chown 0:65532 "$1/state"; chmod 2770 "$1/state"; chmod 0777 "$1/run"`, dir) // as a claim and an emptyDir are in a pod with an fsGroup

	log := must.Do(os.Create(filepath.Join(dir, "log")))(t)
	defer log.Close()
	daemon := exec.Command("unshare", "--mount", "sh", "-c", inImage, "sh", dir, root, "/usr/libexec/fenced/fenced")
	daemon.Stdout, daemon.Stderr = log, log
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, daemon.Start())
	over := make(chan error, 1)
	go func() { over <- daemon.Wait() }()
	t.Cleanup(func() {
		_ = daemon.Process.Kill() // it may have ended
		if t.Failed() {
			t.Log(read(t, dir, "log"))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll(ctx, t, func() bool {
		c, err := net.Dial("unix", filepath.Join(dir, "run/fenced.sock"))
		if err == nil {
			_ = c.Close() // nothing was asked
		}
		return err == nil
	}, "the daemon does not answer")
	s.Worker(hungNode).Kubelet.Hang()
	poll(ctx, t, func() bool {
		d, err := s.Cluster.NodeDeletions(hungNode)
		return err == nil && len(d) > 0
	}, "the Node was not deleted")
	must.Do(s.Cluster.WaitNode(ctx, hungNode, scene.IsReady))(t)
	poll(ctx, t, func() bool {
		out, err := exec.Command("unshare", "--mount", "sh", "-c", inImage, "sh", dir, root, "/usr/bin/fencectl", "timeline", hungNode, "-o", "json").Output()
		var timeline struct{ Runs []struct{ Result string } }
		return err == nil && json.Unmarshal(out, &timeline) == nil && len(timeline.Runs) == 1 && timeline.Runs[0].Result == "Done"
	}, "the run is not done")
	requireFencedOnce(t, s)

	require.NoError(t, daemon.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-over:
		require.NoError(t, err)
	case <-ctx.Done():
		require.FailNow(t, "the daemon does not end")
	}
}

// TestImageKnowsTimeZones: it has no files of them, and a maintenance window in a zone would be an error, with which nothing begins.
func TestImageKnowsTimeZones(t *testing.T) {
	asroot.Need(t, "change the root directory")
	cmd := exec.Command("chroot", filepath.Join(imageBundle(t), "rootfs"), "/usr/bin/fencectl", "simulate", "--objects", "-")
	cmd.Stdin = strings.NewReader(`{apiVersion: fenced.io/v1alpha1, kind: FencePolicy, metadata: {name: racks}, spec: {nodeSelector: {matchLabels: {rack: r1}},
unhealthyConditions: [{type: Ready, status: Unknown, timeout: 60s}], maintenanceWindows: [{schedule: "CRON_TZ=Europe/Berlin 0 2 * * *", duration: 30m}]}}`)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `FencePolicy racks .*: (Active|Paused)`, string(out))
}

// ironic is a Deployment with what the patch meets.
const ironic = `apiVersion: apps/v1
kind: Deployment
metadata: {name: ironic, namespace: default}
spec:
  replicas: 0
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1}}
  selector: {matchLabels: {name: ironic}}
  template:
    metadata: {labels: {name: ironic}}
    spec:
      securityContext: {fsGroup: 994}
      containers: [{name: ironic, image: ironic}]
      volumes: [{name: ironic-data-volume, emptyDir: {}}]
`

// patchesIronic: a real API server takes the manifest as a patch of a Deployment, and beside what that has.
func patchesIronic(t *testing.T, s *scene.Scene) {
	t.Helper()
	kubectl := must.Do(rig.Kubectl(t.Context(), os.Stderr))(t)
	admin := must.Do(s.Cluster.Kubeconfig("an-administrator", "system:masters"))(t)
	patch := exec.Command("sh", "-c", `set -e; PATH=$1:$PATH KUBECONFIG=$2
		export KUBECONFIG
		printf %s "$4" | kubectl create -f - >&2
		kubectl patch deployment ironic --patch-file "$3" --dry-run=server -o json
		kubectl delete deployment ironic >&2`, "sh", kubectl, admin, "image/ironic-sidecar.yaml", ironic)
	patch.Stderr = os.Stderr
	text := must.Do(patch.Output())(t)
	var d appsv1.Deployment
	require.NoError(t, json.Unmarshal(text, &d))
	pod := d.Spec.Template.Spec
	var names []string
	for _, c := range pod.Containers {
		names = append(names, c.Name)
	}
	for _, v := range pod.Volumes {
		names = append(names, v.Name)
	}
	assert.ElementsMatch(t, []string{"fenced", "ironic", "ironic-data-volume", "fenced-config", "fenced-state", "fenced-run"}, names)
	assert.Equal(t, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, d.Spec.Strategy)
	assert.EqualValues(t, 994, *pod.SecurityContext.FSGroup)
}

func poll(ctx context.Context, t *testing.T, ok func() bool, what string) {
	t.Helper()
	for !ok() {
		select {
		case <-ctx.Done():
			require.FailNow(t, what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// builtImage is a directory with the image of this machine's architecture as a layout, and unpacked in bundle by the tools of other engines,
// which compare each digest: skopeo takes the one of the index for this machine, and umoci makes of it what a runtime runs.
var builtImage = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "oci")
	script := `umask 022; mkdir "$1" && image/build.sh "$2" "$1/image" && cd "$1" && skopeo copy --quiet "oci:image:$2" oci:flat:one && umoci unpack --image flat:one bundle`
	text, err := exec.Command("sh", "-ec", script, "sh", dir, versions().this).CombinedOutput()
	return dir, wrapOutput(err, text)
})

// imageBundle is the directory with the unpacked image: rootfs, and the config.json that umoci makes of the image's configuration.
func imageBundle(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("building an image is not short")
	}
	asroot.Need(t, "unpack an image with its owners")
	need(t, "skopeo", "skopeo")
	need(t, "umoci", "umoci")
	return filepath.Join(must.Do(builtImage())(t), "bundle")
}

// imageConfig is what skopeo shows of an image.
type imageConfig struct {
	Architecture, OS, Created string
	Config                    struct {
		User       string
		Entrypoint []string
		Labels     map[string]string
	}
}

// requireImage: skopeo finds the image of an architecture in a layout, with the configuration that it must have. packaging is the
// directory of the source that it was made of.
func requireImage(t *testing.T, packaging, layout, arch string) {
	t.Helper()
	var c imageConfig
	require.NoError(t, json.Unmarshal([]byte(output(t, "skopeo", "--override-arch", arch, "inspect", "--config", layout)), &c))
	day := time.Unix(must.Do(strconv.ParseInt(strings.TrimSpace(output(t, "./epoch.sh")), 10, 64))(t), 0).UTC().Format(time.RFC3339)
	assert.Equal(t, []string{arch, "linux", day}, []string{c.Architecture, c.OS, c.Created})
	assert.Equal(t, "65532:65532", c.Config.User)
	assert.Equal(t, []string{"/usr/libexec/fenced/fenced"}, c.Config.Entrypoint)
	labels := map[string]string{}
	for key, value := range c.Config.Labels {
		labels[strings.TrimPrefix(key, "org.opencontainers.image.")] = value
	}
	assert.Equal(t, day, labels["created"])
	assert.Equal(t, versions().this, labels["version"])
	assert.Equal(t, strings.TrimSpace(output(t, filepath.Join(packaging, "project.sh"), "url")), labels["source"])
	assert.Contains(t, readFile(t, "../THIRD_PARTY_NOTICES"), "\nLicense: "+labels["licenses"]+"\n")
}

// TestImageIsTaken: the tools of other engines take the image, and it has the labels, the owners, the notices and the bill of materials.
func TestImageIsTaken(t *testing.T) {
	root := filepath.Join(imageBundle(t), "rootfs")
	requireImage(t, must.Do(os.Getwd())(t), "oci:"+must.Do(builtImage())(t)+"/image:"+versions().this, runtime.GOARCH)
	hasTheRevision(t, filepath.Join(root, "usr/libexec/fenced/fenced"))
	for path, want := range map[string]string{"var/lib/fenced": "65532 65532 700", "run/fenced": "65532 65533 2755", "usr/bin/fencectl": "0 0 755"} {
		assert.Equal(t, want+"\n", output(t, "stat", "-c", "%u %g %a", filepath.Join(root, path)), path)
	}
	assert.Equal(t, sum(t, "../THIRD_PARTY_NOTICES"), sum(t, filepath.Join(root, noticesFile)))
	listsWhatIsInIt(t, root, "usr/libexec/fenced/fenced", "usr/bin/fencectl")
}

// TestSidecarIsConfined: the manifest is a Deployment, whose container has the user of the
// image, a read-only root and nothing to gain.
func TestSidecarIsConfined(t *testing.T) {
	text := readFile(t, "image/ironic-sidecar.yaml")
	const directive = "    $retainKeys: [type]\n" // of the patch, and not of a Deployment
	require.Contains(t, text, directive)
	var d appsv1.Deployment
	require.NoError(t, yaml.UnmarshalStrict([]byte(strings.Replace(text, directive, "", 1)), &d))
	require.Len(t, d.Spec.Template.Spec.Containers, 1)
	c := d.Spec.Template.Spec.Containers[0]
	require.EqualValues(t, 1, *d.Spec.Replicas)
	require.EqualValues(t, 65532, *c.SecurityContext.RunAsUser)
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	volumes := map[string]bool{}
	for _, v := range d.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		require.True(t, volumes[m.Name], m.Name)
		if m.Name == "fenced-config" {
			require.NotEmpty(t, m.SubPath, "a whole Secret is a directory that everybody may write, which fenced refuses")
		}
	}
}

// TestQuadletReloads: systemctl reload of the container asks the daemon in it, by the names that container and program have.
func TestQuadletReloads(t *testing.T) {
	unit := readFile(t, "image/fenced.container")
	m := regexp.MustCompile(`(?m)^ExecReload=/usr/bin/podman exec (\S+) (\S+) --reload$`).FindStringSubmatch(unit)
	require.NotNil(t, m)
	require.Contains(t, unit, "\nContainerName="+m[1]+"\n")
	require.Contains(t, readFile(t, "image/build.sh"), `"$root`+m[2]+`" ./cmd/fenced`)
}

// TestQuadletFeedsTheWatchdog: podman does not pass the interval of systemd's watchdog on, so the unit says it twice. The times
// are those of the package.
func TestQuadletFeedsTheWatchdog(t *testing.T) {
	unit, packaged := readFile(t, "image/fenced.container"), readFile(t, "systemd/fenced.service")
	watchdog, stop := unitTime(t, unit, `WatchdogSec=(\S+)`), unitTime(t, unit, `TimeoutStopSec=(\S+)`)
	assert.Equal(t, watchdog, unitTime(t, unit, `Environment=WATCHDOG_USEC=(\d+)`, "us"), "the daemon sends pings for another watchdog")
	assert.Equal(t, unitTime(t, packaged, `WatchdogSec=(\S+)`), watchdog)
	assert.Equal(t, unitTime(t, packaged, `TimeoutStopSec=(\S+)`), stop)
	killed := unitTime(t, unit, `PodmanArgs=--stop-timeout=(\d+)`, "s")
	assert.Less(t, killed, stop, "systemd kills podman before podman kills the container")
	assert.GreaterOrEqual(t, killed, stop-10*time.Second, "podman leaves the daemon less time than the unit says")
}

// unitTime is the time that the one line of the unit says; without a unit of its own it has the given one.
func unitTime(t *testing.T, unit, line string, in ...string) time.Duration {
	t.Helper()
	m := regexp.MustCompile(`(?m)^`+line+`$`).FindAllStringSubmatch(unit, -1)
	require.Len(t, m, 1, line)
	text := m[0][1]
	if len(in) > 0 {
		text += in[0]
	}
	d := must.Do(time.ParseDuration(text))(t)
	return d
}

// TestQuadletIsUnderstood: what podman itself makes of it is a unit whose daemon notifies systemd.
func TestQuadletIsUnderstood(t *testing.T) {
	asroot.Need(t, "change the root to another Debian")
	tree := strings.TrimPrefix(newerTree(t), treeOf)
	generated := output(t, "unshare", "--mount", "sh", "-c", `mount --bind "$2" "$1/mnt" && QUADLET_UNIT_DIRS=/mnt exec chroot "$1" /usr/libexec/podman/quadlet --dryrun 2>&1`,
		"sh", tree, absolute(t, "image"))
	require.Contains(t, generated, "\n---fenced.service---\n")
	assert.Regexp(t, `(?m)^Type=notify$`, generated)
	start := regexp.MustCompile(`(?m)^ExecStart=.*$`).FindString(generated)
	for _, word := range []string{"--name fenced", "--sdnotify=container", "--env WATCHDOG_USEC=30000000", "--stop-timeout=55", "--read-only", "--user 65532:65532", "--cap-drop all"} {
		assert.Contains(t, start, " "+word+" ")
	}
}
