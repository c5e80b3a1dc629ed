// Command deb packs a directory as a Debian package: deb VERSION ARCH EPOCH COMPRESSION ROOT LIST CONFIG OUT. LIST is packaging/files;
// CONFIG says what is no file, as nfpm reads it; EPOCH is the time of all files. It changes ownership in no tree: all files are root's, and
// in the scripts that CONFIG names the line @OWNERS@ becomes what gives them to their owners. The same input gives the same bytes.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

func main() {
	if len(os.Args) != 9 {
		fmt.Fprintln(os.Stderr, "usage: deb VERSION ARCH EPOCH COMPRESSION ROOT LIST CONFIG OUT")
		os.Exit(2)
	}
	if err := pack(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "deb:", err)
		os.Exit(1)
	}
}

func pack(args []string) error {
	version, arch, compression, root, out := args[0], args[1], args[3], args[4], args[7]
	seconds, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("the time: %w", err)
	}
	list, err := readList(args[5])
	if err != nil {
		return err
	}
	config, err := nfpm.ParseFile(args[6])
	if err != nil {
		return fmt.Errorf("read %s: %w", args[6], err)
	}
	info, err := config.Get("deb")
	if err != nil {
		return err
	}
	info.Version, info.VersionSchema, info.Arch = version, "none", arch
	info.Prerelease, info.VersionMetadata = "", "" // nfpm's own, of a configuration without a version
	info.MTime = time.Unix(seconds, 0).UTC()
	info.Deb.Compression, info.DisableGlobbing = compression, true
	if info.Contents, err = contents(root, list, info.MTime); err != nil {
		return err
	}
	scripts, err := os.MkdirTemp("", "fenced-deb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scripts)
	for _, script := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove} {
		if *script, err = withOwners(scripts, filepath.Join(filepath.Dir(args[6]), *script), list); err != nil {
			return err
		}
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(deb.Default.Package(info, file), file.Close())
}

// entry is a line of packaging/files.
type entry struct {
	kind, owner, group, path string
	mode                     fs.FileMode
}

func (e entry) isTree() bool { return e.kind == "doc" || e.kind == "tree" }

// readList returns the lines that hold for the Debian package.
func readList(path string) ([]entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var list []entry
	for s := bufio.NewScanner(file); ; {
		if !s.Scan() {
			return list, s.Err()
		}
		f := strings.Fields(s.Text())
		if len(f) == 0 || f[0] == "#" || f[0] == "rpm" {
			continue
		}
		if len(f) != 6 || f[0] != "all" && f[0] != "deb" {
			return nil, fmt.Errorf("%s: this line has not the six fields: %s", path, s.Text())
		}
		e := entry{kind: f[1], owner: f[3], group: f[4], path: f[5]}
		switch e.kind {
		case "dir", "file", "config", "license":
			mode, err := strconv.ParseUint(f[2], 8, 12)
			if err != nil {
				return nil, fmt.Errorf("%s: the mode of %s: %w", path, e.path, err)
			}
			e.mode = fs.FileMode(mode)
		case "link", "doc", "tree":
		default:
			return nil, fmt.Errorf("%s: %s has the unknown kind %s", path, e.path, e.kind)
		}
		list = append(list, e)
	}
}

// contents are the files of root that the list names. It fails for a file that it does not name, and for a name without a file.
func contents(root string, list []entry, when time.Time) (all files.Contents, err error) {
	named := map[string]entry{}
	for _, e := range list {
		if _, err := os.Lstat(filepath.Join(root, e.path)); err != nil {
			return nil, fmt.Errorf("the list names what is not installed: %w", err)
		}
		named[e.path] = e
	}
	err = filepath.WalkDir(root, func(source string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path := strings.TrimPrefix(source, root)
		e, listed := named[path]
		inTree := listed && e.isTree()
		for dir := filepath.Dir(path); !listed && !inTree && len(dir) > 1; dir = filepath.Dir(dir) {
			inTree = named[dir].isTree()
		}
		if !listed && !inTree {
			if d.IsDir() {
				return nil // above what is listed
			}
			return fmt.Errorf("%s is installed and not in the list", path)
		}
		c := &files.Content{Destination: path, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", MTime: when, Mode: e.mode}}
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			c.Type, c.FileInfo.Mode = files.TypeSymlink, 0o777
			if c.Source, err = os.Readlink(source); err != nil {
				return err
			}
		case d.IsDir():
			c.Type = files.TypeDir
			if inTree {
				c.FileInfo.Mode = 0o755
			}
		default:
			c.Source, c.Type = source, files.TypeFile
			if e.kind == "config" {
				c.Type = files.TypeConfigNoReplace
			}
			if inTree {
				c.FileInfo.Mode = 0o644
			}
		}
		all = append(all, c)
		return nil
	})
	return all, err
}

// withOwners copies a script, with what the list says of owners.
func withOwners(dir, script string, list []entry) (string, error) {
	text, err := os.ReadFile(script)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, e := range list {
		if e.owner != "" && e.owner != "-" && e.owner+e.group != "rootroot" {
			fmt.Fprintf(&b, "[ ! -e %[3]s ] || chown -h %[1]s:%[2]s %[3]s\n", e.owner, e.group, e.path) // an administrator may have taken it away
		}
	}
	out := filepath.Join(dir, filepath.Base(script))
	return out, os.WriteFile(out, []byte(strings.Replace(string(text), "@OWNERS@\n", b.String(), 1)), 0o755)
}
