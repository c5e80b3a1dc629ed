package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/k8swatch"
)

// checkPolicies finds what is wrong in policies.d.
func checkPolicies(cfg config.Config) (warnings []string, err error) {
	_, err = loadPolicies(cfg)
	return nil, err
}

// checkRestart adds what only --check-config checks, because the daemon notices it by itself when it
// starts: whether each kubeconfig can be used, whether the user of the service may read every file,
// and whether the port of the metrics is free.
func checkRestart(cfg config.Config) (warnings []string, err error) {
	_, err = checkPolicies(cfg)
	ofKube, kubeErr := checkKubeconfigs(cfg)
	ofUser, userErr := checkServiceUser(cfg)
	warnings = append(ofKube, ofUser...)
	if w := checkPort(cfg.Metrics.Listen); w != "" {
		warnings = append(warnings, cfg.File+": metrics.listen: "+w)
	}
	return warnings, errors.Join(err, kubeErr, userErr)
}

func checkKubeconfigs(cfg config.Config) (warnings []string, err error) {
	var errs []error
	for _, path := range config.Kubeconfigs(cfg) {
		secrets, err := k8swatch.CheckKubeconfig(path)
		errs = append(errs, err)
		for _, file := range secrets {
			if fi, err := os.Stat(file); err == nil && fi.Mode()&0o004 != 0 {
				warnings = append(warnings, fmt.Sprintf("%[1]s, which %[2]s names: everybody may read it (mode %04[3]o), and it is a secret; run: chmod o= %[1]s", file, path, fi.Mode().Perm()))
			}
		}
	}
	return warnings, errors.Join(errs...)
}

// checkServiceUser finds the files that root, who runs the check, may read and the user of the service
// may not. For a password file it only warns, because it concerns one host.
func checkServiceUser(cfg config.Config) (warnings []string, err error) {
	u := serviceUser(cfg.State.Path)
	if u == nil {
		return nil, nil
	}
	var errs []error
	ofHosts, kubeconfigs := config.HostFiles(cfg), goodKubeconfigs(cfg) // as root finds them
	err = asUser(u, func() {
		for _, path := range append(config.OwnFiles(cfg), cfg.State.Etcd.CA, cfg.State.Etcd.Cert, cfg.State.Etcd.Key) {
			if denied(path) {
				errs = append(errs, errors.New(cannotRead(path, u)))
			}
		}
		for _, path := range kubeconfigs {
			if denied(path) {
				errs = append(errs, errors.New(cannotRead(path, u)))
			} else if _, err := k8swatch.CheckKubeconfig(path); err != nil { // a file that it names
				errs = append(errs, fmt.Errorf("the daemon runs as user %s: %w", u.Username, err))
			}
		}
		for _, path := range ofHosts {
			if denied(path) {
				warnings = append(warnings, cannotRead(path, u))
			}
		}
	})
	if err != nil { // a container may forbid it
		warnings = append(warnings, "it is not known what the user of the daemon may read: "+err.Error())
	}
	return warnings, errors.Join(errs...)
}

// goodKubeconfigs are those that root can use; of the others it is told why not.
func goodKubeconfigs(cfg config.Config) []string {
	return slices.DeleteFunc(config.Kubeconfigs(cfg), func(path string) bool {
		_, err := k8swatch.CheckKubeconfig(path)
		return err != nil
	})
}

// denied says whether the thread that asks may not read a file. Whatever else is wrong with
// the file was found before.
func denied(path string) bool {
	if path == "" {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe blocks nobody
	if err == nil {
		_ = f.Close() // it was only opened
	}
	return errors.Is(err, fs.ErrPermission)
}

// portTime bounds the question whose port it is.
const portTime = 2 * time.Second

// checkPort is why metrics could not be served; "" if they could, or if a running fenced
// serves its own there.
func checkPort(addr string) string {
	if addr == "" {
		return ""
	}
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		_ = ln.Close() // it was only tried
		return ""
	}
	if errors.Is(err, syscall.EADDRINUSE) && servesFenced(addr) {
		return ""
	}
	return fmt.Sprintf("%v; the daemon would run without metrics and try again, and fencing goes on: stop the other program, or choose another port", err)
}

// servesFenced says whether fenced itself answers there.
func servesFenced(addr string) bool {
	client := http.Client{Timeout: portTime, Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + "/metrics")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	return err == nil && bytes.Contains(text, []byte("\nfenced_build_info{"))
}
