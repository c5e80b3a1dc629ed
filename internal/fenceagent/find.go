package fenceagent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// searchPath is where agents may be installed, and who must own them.
type searchPath struct {
	dirs  []string
	owner uint32
}

// systemPath has the directories to which packages install agents.
var systemPath = searchPath{dirs: []string{"/usr/sbin", "/usr/bin", "/sbin"}}

var agentName = regexp.MustCompile(`^fence_[a-z0-9_]+$`)

// file is an agent on disk. A changed file is another key.
type file struct {
	path     string // as it is run: some agents depend on the name of their command
	resolved string
	size     int64
	modified int64
	inode    uint64
}

// find finds the agent. A daemon that usually runs as root will run it with the
// devices' passwords, so only a file that root alone can change is accepted.
func (p searchPath) find(name string) (file, error) {
	if !agentName.MatchString(name) {
		return file{}, fmt.Errorf("%q is not the name of a fence agent, like fence_apc_snmp", name)
	}
	for _, dir := range p.dirs {
		path := filepath.Join(dir, name)
		switch _, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return file{}, fmt.Errorf("find the fence agent: %w", err)
		}
		return p.check(path)
	}
	return file{}, fmt.Errorf("the fence agent %s is not installed in %s; install the package that has it (fence-agents)",
		name, strings.Join(p.dirs, ", "))
}

func (p searchPath) check(path string) (file, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return file{}, fmt.Errorf("resolve %s: %w", path, err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return file{}, fmt.Errorf("check %s: %w", resolved, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return file{}, fmt.Errorf("%s is not an executable file", resolved)
	}
	for _, guarded := range []string{resolved, filepath.Dir(resolved), filepath.Dir(path)} {
		if err := p.checkOwner(guarded); err != nil {
			return file{}, err
		}
	}
	return file{
		path: path, resolved: resolved, size: info.Size(), modified: info.ModTime().UnixNano(),
		inode: info.Sys().(*syscall.Stat_t).Ino, // Linux: always this type
	}, nil
}

// checkOwner rejects a file or directory that another user could change.
func (p searchPath) checkOwner(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != p.owner && owner != 0 {
		return fmt.Errorf("%s is owned by user %d, not by root; it was not run", path, owner)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is writable by users other than root; it was not run", path)
	}
	return nil
}
