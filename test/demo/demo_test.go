package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/scene"
)

// ofOneRun is what differs from run to run in its picture: times, places and lengths, what was sent again, and the name of the run.
var ofOneRun = regexp.MustCompile(`class="course" .*|run [\w-]+|\d{4}-\d\d-\d\dT[\d:]+Z|\d\d:\d\d:\d\dZ|\b\d[\dhms.]*[hms]\b|\b(?:x|width)="\d+"`)

// built returns a directory with the demo, and with fenced and fencectl as they are shipped.
func built(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	p := must.Do(scene.Build(ctx, dir, false))(t)
	for _, program := range []string{p.Fenced, p.Fencectl} {
		if filepath.Dir(program) != dir {
			require.NoError(t, os.Symlink(program, filepath.Join(dir, filepath.Base(program))))
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w", "-o", dir+"/", ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

// TestDemo: the demo fences the node on the stand-in, and draws what docs/demo.svg shows, but for the times. If it draws something else, run
// make demo SVG=docs/demo.svg.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := built(ctx, t)
	demo := exec.CommandContext(ctx, filepath.Join(dir, "demo"))
	demo.Dir = dir
	demo.Env = append(os.Environ(), "SVG=demo.svg", "KEEP=", "CONTROLPLANE=")
	out, err := demo.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), hungWorker+" is Ready as a new Node")
	masked := func(file string) []string {
		return strings.Split(ofOneRun.ReplaceAllString(string(must.Do(os.ReadFile(file))(t)), "_"), "\n")
	}
	assert.Equal(t, masked("../../docs/demo.svg"), masked(filepath.Join(dir, "demo.svg")))
}

// TestLittleIsCompiledForTheDemo: it is the first that somebody sees of fenced. The typed client of all of Kubernetes would double what is
// compiled beside fenced itself.
func TestLittleIsCompiledForTheDemo(t *testing.T) {
	for _, pkg := range strings.Fields(string(must.Do(exec.Command("go", "list", "-deps", ".").Output())(t))) {
		for _, large := range []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/applyconfigurations", "k8s.io/client-go/discovery", "k8s.io/apiserver/", "k8s.io/apiextensions-apiserver/"} {
			assert.False(t, strings.HasPrefix(pkg, large), "the demo imports %s", pkg)
		}
	}
}

// TestBundlePlays: what make bundle packs plays on a machine without Go and without this repository.
func TestBundlePlays(t *testing.T) {
	if os.Getenv("FENCED_SOAK") == "" {
		t.Skip("packs 100 MB; make once sets FENCED_SOAK")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	dist, dir := t.TempDir(), t.TempDir()
	out, err := exec.CommandContext(ctx, "./bundle.sh", "test", built(ctx, t), dist).CombinedOutput()
	require.NoError(t, err, string(out))
	packed := must.Do(filepath.Glob(filepath.Join(dist, "fenced-demo-test-*.tar.gz")))(t)
	require.Len(t, packed, 1)
	out, err = exec.CommandContext(ctx, "tar", "-C", dir, "--strip-components=1", "-xzf", packed[0]).CombinedOutput()
	require.NoError(t, err, string(out))

	demo := exec.CommandContext(ctx, "./demo")
	demo.Dir = dir
	demo.Env = []string{"CONTROLPLANE=real", "PATH=/nowhere", "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
	out, err = demo.CombinedOutput()
	require.NoError(t, err, string(out))
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		assert.Contains(t, string(out), "taking "+filepath.Join(dir, name)+"\n")
	}
	assert.Contains(t, string(out), hungWorker+" is Ready as a new Node")
}
