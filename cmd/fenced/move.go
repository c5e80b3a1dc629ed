package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/state"
)

// move is what --export and --import ask for: the state leaves, or comes from, a file
// while no daemon has it.
type move struct{ export, from string }

func (m move) wanted() bool { return m.export != "" || m.from != "" }

func (m move) do(ctx context.Context, file string, set []string, stdout io.Writer) error {
	cfg, err := config.Load(file, set...)
	if err != nil {
		return err
	}
	if m.export != "" {
		return m.out(ctx, cfg.State, stdout)
	}
	return m.in(ctx, cfg.State, stdout)
}

func (m move) out(ctx context.Context, c config.State, stdout io.Writer) (err error) {
	if c.Engine != config.EngineEtcd {
		if _, err := os.Stat(c.Path); err != nil { // opening would make an empty one
			return fmt.Errorf("export the state: %w", err)
		}
	}
	s, err := openWhole(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	n, err := writeExport(ctx, s, m.export)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "exported %d records to %s\n", n, m.export)
	return nil
}

// writeExport makes a new file that only its owner may read, and leaves none that is
// not whole.
func writeExport(ctx context.Context, s state.Store, path string) (n int, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, exportFailed(err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if n, err = state.Export(ctx, s, f); err != nil {
		return 0, err
	}
	return n, f.Sync()
}

// exportFailed gives a file that is there its hint.
func exportFailed(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("export the state: %w\nhint: name another file; none is written over", err)
	}
	return fmt.Errorf("export the state: %w", err)
}

func (m move) in(ctx context.Context, c config.State, stdout io.Writer) (err error) {
	f, err := os.Open(m.from)
	if err != nil {
		return fmt.Errorf("import the state: %w", err)
	}
	defer f.Close() // it was only read
	s, err := openStore(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if c.Engine != config.EngineEtcd {
		if err := giveToDaemon(c.Path); err != nil {
			return err
		}
	}
	n, err := state.Import(ctx, s, f)
	if err != nil {
		return fmt.Errorf("read %s: %w\nhint: an import wants the whole file of an export, and a state that is empty and that no daemon uses", m.from, err)
	}
	fmt.Fprintf(stdout, "imported %d records; no cluster is acted on until fenced is started\n", n)
	return nil
}

// giveToDaemon makes the state file that root made the property of whoever owns its
// directory: the daemon's user could not open it otherwise.
func giveToDaemon(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("import the state: %w", err)
	}
	owner, ok := dir.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("import the state: %w", err)
	}
	return nil
}

// openWhole opens the state, and refuses what an import left half done: only another
// import cures that.
func openWhole(ctx context.Context, c config.State) (state.Store, error) {
	s, err := openStore(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := state.Whole(ctx, s); err != nil {
		if errors.Is(err, state.ErrUnfinished) {
			err = configError{err}
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Export implements api.Daemon.
func (c control) Export(ctx context.Context, w io.Writer) error {
	_, err := state.Export(ctx, c.store, w)
	return err
}
