package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/setup"
)

// surveyTime is longer than the daemon's program needs at most: it gives what it saw by then.
const surveyTime = 2 * time.Minute

// maxSurvey bounds what the survey may say: a cluster is untrusted.
const maxSurvey = 256 << 20

// surveyCluster has the daemon's program look at a cluster. fencectl itself does not know Kubernetes.
func surveyCluster(ctx context.Context, r setup.Request) (s setup.Survey, err error) {
	program, err := daemonProgram()
	if err != nil {
		return s, err
	}
	request, err := json.Marshal(r)
	if err != nil {
		return s, fmt.Errorf("init: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--survey")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin = bytes.NewReader(request)
	out, said := limitedBuffer{left: maxSurvey}, limitedBuffer{left: 64 << 10}
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(strings.TrimPrefix(said.String(), "fenced: ")); text != "" {
			err = errors.New(text)
		}
		return s, &exitError{code: exitFailure, err: fmt.Errorf("init: look at the cluster: %w", err), hint: []string{
			"can this host reach the API server, and is the kubeconfig an administrator's? kubectl --kubeconfig " + r.Kubeconfig + " get nodes"}}
	}
	err = json.Unmarshal(out.Bytes(), &s)
	if wanted := servers(r); err == nil && len(s.Servers) != wanted {
		err = fmt.Errorf("it has %d API servers, not %d", len(s.Servers), wanted)
	}
	if err != nil {
		return s, &exitError{code: exitFailure, err: fmt.Errorf("init: read the answer of %s --survey: %w", program, err),
			hint: []string{"is it of the same version as fencectl (" + version + ")? " + program + " --version"}}
	}
	return s, nil
}

// servers is how many API servers a cluster has.
func servers(r setup.Request) int {
	if r.Management.Kubeconfig != "" {
		return 2
	}
	return 1
}

// limitedBuffer keeps the beginning of what is written.
type limitedBuffer struct {
	bytes.Buffer
	left int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	_, err := b.Buffer.Write(p[:n])
	return len(p), err
}

// usualKubeconfigs are where administrators of kubeadm, k3s and RKE2 have theirs.
var usualKubeconfigs = []string{"/etc/kubernetes/admin.conf", "/etc/rancher/k3s/k3s.yaml", "/etc/rancher/rke2/rke2.yaml"}

// findKubeconfig is the kubeconfig that was named, or the usual one.
func findKubeconfig(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	if list := filepath.SplitList(os.Getenv("KUBECONFIG")); len(list) == 1 {
		return list[0], nil
	} else if len(list) > 1 {
		return "", usageError(fmt.Errorf("init: KUBECONFIG names %d files", len(list)), "--kubeconfig FILE names the one of the cluster")
	}
	var tried []string
	if home, err := os.UserHomeDir(); err == nil {
		tried = append(tried, filepath.Join(home, ".kube", "config"))
	}
	tried = append(tried, usualKubeconfigs...)
	for _, path := range tried {
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return "", fmt.Errorf("init: find a kubeconfig: %w", err)
		}
	}
	return "", usageError(fmt.Errorf("init: there is no kubeconfig: none of %s can be read, and KUBECONFIG is not set", strings.Join(tried, ", ")),
		"fencectl init --kubeconfig FILE, with an administrator's kubeconfig of the cluster")
}
