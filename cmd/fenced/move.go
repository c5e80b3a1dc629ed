package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/state"
)

// move carries out --export and --import: the state is copied to or from a file while no daemon
// uses it.
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

func (m move) out(ctx context.Context, c config.State, stdout io.Writer) error {
	if c.Engine != config.EngineEtcd {
		if _, err := os.Lstat(c.Path); err != nil { // opening would make an empty one
			return fmt.Errorf("export the state: %w", err)
		}
	}
	n, err := writeExport(m.export, func(f io.Writer) (n int, err error) {
		s, err := openAsOwner(ctx, c, openWhole)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		return state.Export(ctx, s, f)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "exported %d records to %s\n", n, m.export)
	return nil
}

// writeExport creates a file that only its owner may read. After an error it removes the file again.
// If write has dropped the permission to do that, the error says so.
func writeExport(path string, write func(io.Writer) (int, error)) (n int, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, exportFailed(err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, removePart(path))
		}
	}()
	if n, err = write(f); err != nil {
		return 0, err
	}
	return n, f.Sync()
}

func removePart(path string) error {
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("%w\nhint: what is there is no whole export; remove it yourself", err)
	}
	return nil
}

// exportFailed adds the hint for a file that exists already.
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
	s, err := openAsOwner(ctx, c, openStore)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	n, err := state.Import(ctx, s, f)
	if err != nil {
		return fmt.Errorf("read %s: %w\nhint: an import wants the whole file of an export, and a state that is empty and that no daemon uses", m.from, err)
	}
	fmt.Fprintf(stdout, "imported %d records; no cluster is acted on until fenced is started\n", n)
	return nil
}

// openAsOwner opens the state as the user who owns it. The caller has opened the other file before,
// with the permissions of the user who gave the command.
func openAsOwner(ctx context.Context, c config.State, open func(context.Context, config.State) (state.Store, error)) (state.Store, error) {
	if c.Engine != config.EngineEtcd {
		if err := becomeOwner(c.Path); err != nil {
			return nil, err
		}
	}
	return open(ctx, c)
}

// Export implements api.Daemon.
func (c control) Export(ctx context.Context, w io.Writer) error {
	_, err := state.Export(ctx, c.store, w)
	return err
}
