package rig

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const kubernetesVersion = "v1.36.3"

// program is one that is built from the module test/controlplane.
type program struct{ name, pkg, takes string }

var (
	etcd      = program{"etcd", "go.etcd.io/etcd/server/v3", "half a minute"}
	apiServer = program{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "3 to 5 minutes"}
	manager   = program{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "a minute"}
	scheduler = program{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "half a minute"}
)

// The programs contain their true version: an API server with version v0.0.0-master enables the
// features of another release.
const linkFlags = "-s -w" +
	" -X k8s.io/component-base/version.gitVersion=" + kubernetesVersion +
	" -X k8s.io/component-base/version.gitMajor=1" +
	" -X k8s.io/component-base/version.gitMinor=36" +
	" -X k8s.io/client-go/pkg/version.gitVersion=" + kubernetesVersion

// Binaries returns the directory that holds etcd, kube-apiserver, kube-controller-manager and kube-scheduler. It builds those of them
// that this user has never built in this version. It writes to progress, which may be io.Discard. If several processes call it at the
// same time, one of them builds and the others wait.
func Binaries(ctx context.Context, progress io.Writer) (dir string, err error) {
	for _, p := range []program{etcd, apiServer, manager, scheduler} { // the quickest first: it shows that the build works
		path, err := p.cached(ctx, progress)
		if err != nil {
			return "", err
		}
		dir = filepath.Dir(path)
	}
	return dir, nil
}

// Programs returns the paths of what a control plane needs, by name: each from the first of the directories in which it is, else from the
// cache, else built. kube-scheduler is not among them, because most control planes run none.
func Programs(ctx context.Context, assets []string, progress io.Writer) (map[string]string, error) {
	paths := map[string]string{}
	for _, p := range []program{etcd, apiServer, manager} {
		path, found := p.in(assets)
		if !found {
			var err error
			if path, err = p.cached(ctx, progress); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(progress, "taking %s\n", path)
		paths[p.name] = path
	}
	return paths, nil
}

func (p program) in(assets []string) (path string, found bool) {
	for _, dir := range assets {
		if path := filepath.Join(dir, p.name); dir != "" && built(path) {
			return path, true
		}
	}
	return "", false
}

func (p program) cached(ctx context.Context, progress io.Writer) (string, error) {
	return cached(ctx, "controlplane", p.name, kubernetesVersion, linkFlags, progress, func(ctx context.Context, module, out string, progress io.Writer) error {
		return buildOne(ctx, module, out, p.pkg, linkFlags, p.name, p.takes+" on 2 cores", progress)
	})
}

const kubectlPackage = "k8s.io/kubernetes/cmd/kubectl"

// Kubectl returns the directory that holds kubectl, of the version of the control plane. Like
// Binaries, it builds it if this user never did.
func Kubectl(ctx context.Context, progress io.Writer) (string, error) {
	path, err := cached(ctx, "kubectl", "kubectl", kubernetesVersion, linkFlags, progress, func(ctx context.Context, module, out string, progress io.Writer) error {
		return buildOne(ctx, module, out, kubectlPackage, linkFlags, "kubectl", "a minute on 2 cores", progress)
	})
	return filepath.Dir(path), err
}

const (
	healthCheckVersion = "v0.2.1-0.20260226113419-88465550a74b"
	healthCheckPackage = "github.com/openshift/machine-api-operator/cmd/machine-healthcheck"
	healthCheckFlags   = "-s -w"
)

// HealthCheckController returns the path of OpenShift's machine-healthcheck controller. Like Binaries, it builds it if this user never did.
func HealthCheckController(ctx context.Context, progress io.Writer) (string, error) {
	const name = "machine-healthcheck"
	return cached(ctx, "openshift", name, healthCheckVersion, healthCheckFlags, progress, func(ctx context.Context, module, out string, progress io.Writer) error {
		return buildOne(ctx, module, out, healthCheckPackage, healthCheckFlags, "OpenShift's "+name+" controller", "2 minutes on 2 cores", progress)
	})
}

const (
	helmVersion = "v3.22.0"
	helmPackage = "helm.sh/helm/v3/cmd/helm"
	// Like its releases, it renders for the Kubernetes of its own client unless it asks an API server.
	helmFlags = "-s -w -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=37 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=37"
)

// Helm returns the directory that holds helm. Like Binaries, it builds it if this user never did.
func Helm(ctx context.Context, progress io.Writer) (string, error) {
	path, err := cached(ctx, "helm", "helm", helmVersion, helmFlags, progress, func(ctx context.Context, module, out string, progress io.Writer) error {
		return buildOne(ctx, module, out, helmPackage, helmFlags, "helm", "a minute on 2 cores", progress)
	})
	return filepath.Dir(path), err
}

// cached returns a file in the user's cache that is built from the module test/NAME, or the directory that holds such files if file is
// empty. If it is not there, build makes it beside its place, where it is then put. The directory has another name for each version, for the content
// of the module and for flags.
func cached(ctx context.Context, name, file, version, flags string, progress io.Writer,
	build func(ctx context.Context, module, out string, progress io.Writer) error,
) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "test", name)
	key, err := buildKey(ctx, module, flags)
	if err != nil {
		return "", err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place to keep the programs of the tests: %w", err)
	}
	dir := filepath.Join(user, "fenced-test", name, version+"-"+key)
	place := filepath.Join(dir, file)
	if built(place) {
		return place, nil
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return "", fmt.Errorf("make the cache of the tests' programs: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock", progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if built(place) { // by the process that held the lock before
		return place, nil
	}
	tmp := place + ".tmp"
	_ = os.RemoveAll(tmp) // a build that was killed left it; this process holds the lock
	if err := build(ctx, module, tmp, progress); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, place); err != nil {
		return "", fmt.Errorf("put what was built in place: %w", err)
	}
	return place, nil
}

func built(path string) bool {
	_, err := os.Stat(path)
	return err == nil // cached renames what is complete into place
}

// buildKey changes with everything that the programs are built from.
func buildKey(ctx context.Context, module, flags string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("read the module %s: %w", module, err)
		}
		h.Write(b)
	}
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	cmd.Dir = module
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its version: %w", err)
	}
	h.Write(out)
	h.Write([]byte(flags))
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// buildOne builds pkg of a module, and tells progress that it builds what, and how long that takes.
func buildOne(ctx context.Context, module, out, pkg, flags, what, takes string, progress io.Writer) error {
	fmt.Fprintf(progress, "building %s, about %s\n", what, takes)
	start := time.Now()
	stop := heartbeat(progress, what, start)
	err := goBuild(ctx, module, out, pkg, flags)
	stop()
	if err == nil {
		fmt.Fprintf(progress, "built %s in %s\n", what, time.Since(start).Round(time.Second))
	}
	return err
}

func goBuild(ctx context.Context, module, out, pkg, flags string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-ldflags", flags, "-o", out, pkg)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	// The build gets a process group of its own, so that its compilers end if it is cancelled.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, LastLines(said.String(), 20))
	}
	return nil
}

// LastLines is the end of a text.
func LastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// lock takes an advisory lock across processes. The kernel releases it when the process ends, so no
// stale lock remains.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the build lock: %w", err)
	}
	start := time.Now()
	stop := func() {}
	defer func() { stop() }()
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // Close releases the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !waiting {
			fmt.Fprintln(progress, "another process is building the programs of the tests, waiting for it")
			stop = heartbeat(progress, "them in another process", start)
		}
		if !Sleep(ctx, 200*time.Millisecond) {
			_ = f.Close()
			return nil, fmt.Errorf("wait for the build in another process: %w", ctx.Err())
		}
	}
}

// heartbeat writes every 15 seconds that a long build is still running.
func heartbeat(progress io.Writer, what string, start time.Time) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case now := <-tick.C:
				fmt.Fprintf(progress, "  ... building %s, %s so far\n", what, now.Sub(start).Round(time.Second))
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

const modulePath = "github.com/fenced/fenced"

// Root finds the directory of the main module in the working directory or above it: a test runs in the
// directory of its package, the demo at the top. The nested module and the shipped manifests are read
// from there.
func Root() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module "+modulePath+"\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of %s at or above %s", modulePath, wd)
		}
	}
}
