package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// clusterAPIVersion is that of test/clusterapi/go.mod.
const clusterAPIVersion = "v1.12.1"

const clusterAPIFlags = "-s -w -X sigs.k8s.io/cluster-api/version.gitVersion=" + clusterAPIVersion

const clusterAPIModule = "sigs.k8s.io/cluster-api"

// clusterAPIEdits are the two changes to the manager's main.go: without a Pod around it, it finds no
// namespace for its Lease, and its webhooks would listen on all addresses. No flag says either.
var clusterAPIEdits = []struct{ from, to string }{
	{"Port:     webhookPort,", `Host: "127.0.0.1", Port: webhookPort,`},
	{`"controller-leader-election-capi",`, `"controller-leader-election-capi", LeaderElectionNamespace: "` + ClusterAPINamespace + `",`},
}

// The files in the directory that ClusterAPIBinary returns.
const (
	clusterAPIManager   = "cluster-api-manager"
	clusterAPIManifests = "config" // that of the module
)

// ClusterAPIBinary returns the directory that holds the manager of the Cluster API and its manifests.
// Like Binaries, it builds them if this user never did.
func ClusterAPIBinary(ctx context.Context, progress io.Writer) (string, error) {
	return cached(ctx, "clusterapi", clusterAPIVersion, clusterAPIFlags+fmt.Sprint(clusterAPIEdits), progress, buildClusterAPI)
}

// buildClusterAPI builds the manager in a copy of its module, because Go replaces no file below its
// module cache, and keeps the manifests of that copy.
func buildClusterAPI(ctx context.Context, module, dir string, progress io.Writer) error {
	downloaded, err := download(ctx, module, clusterAPIModule)
	if err != nil {
		return err
	}
	source := filepath.Join(dir, "source")
	if err := os.CopyFS(source, os.DirFS(downloaded)); err != nil {
		return fmt.Errorf("copy the module of the Cluster API: %w", err)
	}
	if err := editMain(filepath.Join(source, "main.go")); err != nil {
		return err
	}
	out := filepath.Join(dir, clusterAPIManager)
	if err := buildOne(ctx, source, out, ".", clusterAPIFlags, "the manager of the Cluster API", "3 minutes on 2 cores", progress); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(source, "config"), filepath.Join(dir, clusterAPIManifests)); err != nil {
		return fmt.Errorf("keep the manifests of the Cluster API: %w", err)
	}
	if err := os.RemoveAll(source); err != nil {
		return fmt.Errorf("remove the copy of the Cluster API's module: %w", err)
	}
	return nil
}

// download returns the directory of a module that the go.mod in dir requires. Go compares it with
// go.sum.
func download(ctx context.Context, dir, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	if e := json.Unmarshal(out, &got); e != nil || got.Error != "" || got.Dir == "" {
		return "", fmt.Errorf("download %s: %w", module, errors.Join(err, e, errors.New(got.Error)))
	}
	return got.Dir, nil
}

func editMain(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the manager's main.go: %w", err)
	}
	edited := string(text)
	for _, e := range clusterAPIEdits {
		if n := strings.Count(edited, e.from); n != 1 {
			return fmt.Errorf("edit the manager's main.go: %q is there %d times, not once: see what this version of the Cluster API has in its place", e.from, n)
		}
		edited = strings.Replace(edited, e.from, e.to, 1)
	}
	if err := os.WriteFile(path, []byte(edited), 0o644); err != nil {
		return fmt.Errorf("write the manager's main.go: %w", err)
	}
	return nil
}
