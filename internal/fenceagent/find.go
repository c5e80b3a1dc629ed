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

// places are where agents may lie, and whom they must belong to.
type places struct {
	dirs  []string
	owner uint32
}

// system are the directories that packages install agents to.
var system = places{dirs: []string{"/usr/sbin", "/usr/bin", "/sbin"}}

var agentName = regexp.MustCompile(`^fence_[a-z0-9_]+$`)

// file is an agent as it lies on disk. A changed file is another key.
type file struct {
	path     string // as it is run: some agents look at the name they were called by
	resolved string
	size     int64
	modified int64
	inode    uint64
}

// find looks for the agent. It is run with the devices' passwords by a daemon
// that is mostly root: only what root alone can change is taken.
func (p places) find(name string) (file, error) {
	if !agentName.MatchString(name) {
		return file{}, fmt.Errorf("%q is not the name of a fence agent, like fence_apc_snmp", name)
	}
	for _, dir := range p.dirs {
		path := filepath.Join(dir, name)
		switch _, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return file{}, fmt.Errorf("look for the fence agent: %w", err)
		}
		return p.check(path)
	}
	return file{}, fmt.Errorf("the fence agent %s is not installed in %s; install the package that has it (fence-agents)",
		name, strings.Join(p.dirs, ", "))
}

func (p places) check(path string) (file, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return file{}, fmt.Errorf("resolve %s: %w", path, err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return file{}, fmt.Errorf("look at %s: %w", resolved, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return file{}, fmt.Errorf("%s is not an executable file", resolved)
	}
	for _, guarded := range []string{resolved, filepath.Dir(resolved), filepath.Dir(path)} {
		if err := p.guarded(guarded); err != nil {
			return file{}, err
		}
	}
	return file{
		path: path, resolved: resolved, size: info.Size(), modified: info.ModTime().UnixNano(),
		inode: info.Sys().(*syscall.Stat_t).Ino, // Linux: always this type
	}, nil
}

// guarded refuses what another user could change.
func (p places) guarded(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != p.owner && owner != 0 {
		return fmt.Errorf("%s belongs to user %d, not to root: it is not run", path, owner)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s can be written by others than root: it is not run", path)
	}
	return nil
}
