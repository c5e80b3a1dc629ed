package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fenced/fenced/configs"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/setup"
)

// serviceGroup is the group of the daemon, which may read the configuration.
const serviceGroup = "fenced"

// writer puts files below a directory.
type writer struct {
	dir string
	gid int // -1: that of this process; then only this user may read
}

// writeFiles writes all files or, if one exists that it may not replace, none. What somebody may have written into one that it replaces
// is kept beside it.
func writeFiles(dir string, files []setup.File, force bool) (kept []setup.File, err error) {
	w := writer{dir: dir, gid: -1}
	if g, err := user.LookupGroup(serviceGroup); err == nil && os.Geteuid() == 0 {
		if w.gid, err = strconv.Atoi(g.Gid); err != nil {
			return nil, fmt.Errorf("init: the group %s has the id %q: %w", serviceGroup, g.Gid, err)
		}
	}
	replace := map[string]bool{}
	var exist []string
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		switch _, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("init: %w", err)
		case force, f.Path == "fenced.yaml" && isUnchanged(path):
			replace[path] = true
		default:
			exist = append(exist, path)
		}
	}
	if len(exist) > 0 {
		return nil, &exitError{code: exitConflict, err: fmt.Errorf("init: nothing was written: %s exists already", strings.Join(exist, ", ")), hint: []string{
			"--output-dir DIR writes to another directory, --dry-run only shows what was seen, --force replaces the files, and keeps the old ones beside them"}}
	}
	if err := w.makeTree(); err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	now := time.Now().UTC().Format("20060102T150405Z")
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		if replace[path] && !isUnchanged(path) && !holds(path, f.Text) {
			old := f.Path + "." + now + ".old"
			if err := os.Link(path, filepath.Join(dir, old)); err != nil {
				return kept, fmt.Errorf("init: keep what stands in %s: %w", path, err)
			}
			kept = append(kept, setup.File{Path: old, What: "what stood there before"})
		}
		if err := w.put(path, f, replace[path]); err != nil {
			return kept, fmt.Errorf("init: write %s: %w", path, err)
		}
	}
	return kept, nil
}

// checkFiles reads the configuration as the daemon will, before it is written: what --check-config would refuse is told
// now. The kubeconfig and the passwords are not there yet, and need not be. Errors name the files as they will be.
func checkFiles(dir string, files []setup.File) (err error) {
	tmp, err := os.MkdirTemp("", "fencectl-init-")
	if err != nil {
		return fmt.Errorf("init: check the files before they are written: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	w := writer{dir: tmp, gid: -1}
	err = w.makeTree()
	for i := 0; i < len(files) && err == nil; i++ {
		err = w.put(filepath.Join(tmp, files[i].Path), files[i], false)
	}
	if err != nil {
		return fmt.Errorf("init: check the files before they are written: %w", err)
	}
	main := filepath.Join(tmp, "fenced.yaml")
	policies := func(c config.Config) ([]string, error) {
		var errs []error
		err := config.ReadPolicies(c, func(file string, data []byte) {
			_, err := manifest.DecodePolicies(file, data)
			errs = append(errs, err)
		})
		return nil, errors.Join(append(errs, err)...)
	}
	if _, err := config.Check(main, policies); err != nil {
		return usageError(fmt.Errorf("init: nothing was written, because fenced would refuse it: %s", strings.ReplaceAll(err.Error(), tmp, dir)),
			"--bmc, --bmc-username and --cluster say what stands there: correct them, and run init again")
	}
	return nil
}

// isUnchanged says whether a file is the fenced.yaml of the package as it was installed: nobody's work,
// and kept in /usr/share/fenced.
func isUnchanged(path string) bool { return holds(path, configs.Reference) }

// holds says whether a file is a regular one with this text.
func holds(path string, want []byte) bool {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() != int64(len(want)) {
		return false
	}
	text, err := os.ReadFile(path)
	return err == nil && bytes.Equal(text, want)
}

// put writes one file in one step: a reader sees the whole file or none. Without replace, a file that has
// appeared in the meantime stays.
func (w writer) put(path string, f setup.File, replace bool) (err error) {
	dir := filepath.Dir(path)
	if err := w.makeDirs(dir); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // not *.yaml, and nobody else may read it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(tmp.Name())) }()
	_, err = tmp.Write(f.Text)
	err = errors.Join(err, w.own(tmp, f.Script), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if replace {
		err = os.Rename(tmp.Name(), path)
	} else {
		err = os.Link(tmp.Name(), path)
	}
	return err
}

// remove removes a file that may be gone.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// own gives a file its group and mode.
func (w writer) own(f *os.File, script bool) error {
	mode := os.FileMode(0o600)
	if w.gid >= 0 {
		if err := f.Chown(-1, w.gid); err != nil {
			return err
		}
		mode = 0o640
	}
	if script {
		mode |= 0o100
	}
	return f.Chmod(mode)
}

// makeTree makes the directories that fenced.yaml and the next steps name.
func (w writer) makeTree() error {
	for _, sub := range []string{"hosts.d", "policies.d", "credentials"} {
		if err := w.makeDirs(filepath.Join(w.dir, sub)); err != nil {
			return err
		}
	}
	return nil
}

// makeDirs makes the directories that are missing.
func (w writer) makeDirs(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.makeDirs(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if w.gid < 0 {
		return nil
	}
	return os.Chown(dir, -1, w.gid)
}

// initResult is the output of init -o json.
type initResult struct {
	setup.Survey
	Distribution string `json:"distribution"`
	// Written is false with --dry-run.
	Written bool         `json:"written"`
	Files   []setup.File `json:"files"`
	Next    []setup.Step `json:"next"`
}

// printInit says what was seen, what was written, and what to do next.
func (c *cli) printInit(r *initResult) error {
	for i, v := range r.Servers {
		what := "cluster " + r.Cluster
		if i > 0 {
			what = "its management cluster"
		}
		fmt.Fprintf(c.out, "%s: %s, %s %s\n", what, escapeControl(v.URL), r.Distribution, escapeControl(v.Version))
		if v.IsLoopback() {
			fmt.Fprintln(c.out, "warning: this address is right only on the host of the API server; with fenced elsewhere, add --server https://ADDRESS:PORT")
		}
	}
	for _, print := range []func(*initResult) error{c.printKinds, c.printControllers, c.printNodes} {
		if err := print(r); err != nil {
			return err
		}
	}
	if len(r.Report.Checks) == 0 {
		fmt.Fprintln(c.out, "\nfenced begins nothing by itself: no check asks for anything. docs/systems.md says which checks and policies it takes")
	} else {
		fmt.Fprintln(c.out, "\nWHAT THE CHECKS ASK FOR NOW")
		if err := c.printReport(&r.Report); err != nil {
			return err
		}
	}
	if err := c.printUnseen(r); err != nil {
		return err
	}
	return c.printNext(r)
}

// printUnseen prints sentences, which are too long for a table.
func (c *cli) printUnseen(r *initResult) error {
	p := c.painter(c.out)
	for i, u := range r.Unseen {
		if i == 0 {
			fmt.Fprintln(c.out, "\nNOT SEEN")
		}
		if _, err := fmt.Fprintf(c.out, "%s: %s\n  %s\n", p.paint(yellow, escapeControl(u.What)), escapeControl(u.Error), escapeControl(u.Matters)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) printKinds(r *initResult) error {
	t := newTable("KIND", "GROUP", "OBJECTS")
	for _, k := range r.Kinds {
		if !k.Served && k.Problem == "" {
			continue
		}
		objects := cell{text: fmt.Sprint(k.Objects)}
		if k.Problem != "" {
			objects = cell{text: "not seen", color: yellow}
		}
		t.add(k.Kind, orDash(k.Group), objects)
	}
	return t.write(c.out, c.painter(c.out), "KINDS THAT ARE SERVED")
}

func (c *cli) printControllers(r *initResult) error {
	t := newTable("CONTROLLER", "ALIVE", "LEASE")
	for _, k := range r.Controllers {
		alive := cell{text: "no"}
		switch {
		case k.Problem != "":
			alive = cell{text: "not known", color: yellow}
		case k.Holder != "":
			alive = cell{text: "yes", color: yellow}
		case len(k.Elsewhere) > 0:
			alive = cell{text: "no, unless " + k.Elsewhere[0] + " is in controllerNamespaces", color: yellow}
		}
		t.add(k.Name, alive, k.Lease)
	}
	return t.write(c.out, c.painter(c.out), "OTHER REMEDIATORS")
}

func (c *cli) printNodes(r *initResult) error {
	t := newTable("NODE", "MACHINE", "READY", "BMC", "CONTESTED")
	for _, n := range r.Nodes {
		ready, bmc := cell{text: "yes", color: green}, cell{text: n.BMC}
		if !n.Ready {
			ready = cell{text: "no", color: yellow}
		}
		if n.BMC == "" {
			bmc = cell{text: "none", color: yellow}
		}
		contested := orDash(n.Contested)
		if !n.Asked {
			contested = "not asked"
		}
		t.add(n.Name, orDash(n.Machine), ready, bmc, contested)
	}
	return t.write(c.out, c.painter(c.out), "HOSTS")
}

func (c *cli) printNext(r *initResult) error {
	title := "WRITTEN"
	if !r.Written {
		title = "WOULD BE WRITTEN"
	}
	t := newTable("PATH", "WHAT")
	for _, f := range r.Files {
		t.add(f.Path, f.What)
	}
	if err := t.write(c.out, c.painter(c.out), title); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "\nNEXT")
	for i, s := range r.Next {
		if _, err := fmt.Fprintf(c.out, "%d. %s:\n     %s\n", i+1, escapeControl(s.Do), escapeControl(s.Command)); err != nil {
			return err
		}
	}
	return nil
}
