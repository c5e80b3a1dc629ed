package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/event"
)

// reloadOrder is a reload that somebody waits for.
type reloadOrder struct {
	api.Order
	done chan event.Event // one, when the reload has ended
}

// order has the reload done, and answers with what became of it.
func (r *reloader) order(ctx context.Context, o api.Order) (api.OrderResult, error) {
	asked := reloadOrder{o, make(chan event.Event, 1)}
	select {
	case r.orders <- asked:
	case <-ctx.Done():
		return api.OrderResult{}, fmt.Errorf("reload; it has not begun: %w", ctx.Err())
	}
	select {
	case e := <-asked.done:
		if e.Reason != "" {
			return api.OrderResult{}, api.Refused(string(e.Reason), e.Message, "")
		}
		return api.OrderResult{Message: e.Message}, nil
	case <-ctx.Done():
		return api.OrderResult{}, fmt.Errorf("reload; it has begun, and the journal will say what became of it: %w", ctx.Err())
	}
}

// mainPID is the variable in which systemd tells ExecReload= who the daemon is.
const mainPID = "MAINPID"

// askReload is fenced --reload, whose files were checked: the daemon takes them in, and the error is why it did
// not. systemd itself learns of no refusal: so ExecReload= fails in its place.
func askReload(file string, set []string, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cfg, err := config.Load(file, set...)
	if err != nil {
		return configError{err}
	}
	done, err := api.New(cfg.Control.Socket).Do(ctx, api.Order{Verb: api.Reload, Reason: "fenced --reload"})
	if err == nil {
		fmt.Fprintln(stdout, done.Value.Message)
		return nil
	}
	answer, answered := errors.AsType[*api.Error](err)
	older := answered && answer.Code == api.CodeNotFound
	if pid := os.Getenv(mainPID); pid != "" && (older || errors.Is(err, api.ErrUnreachable)) {
		return signalReload(pid, err, stdout)
	}
	if !answered {
		return fmt.Errorf("reload fenced: %w; is it running, and is control.socket of %s still that of its start? systemctl status fenced", err, file)
	}
	return fmt.Errorf("reload fenced: %w", err)
}

// signalReload reloads a daemon that cannot be asked: its socket is at another path than the files say now, or
// it is of an older version.
func signalReload(pid string, why error, stdout io.Writer) error {
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 1 {
		return fmt.Errorf("reload fenced: %w; and %s=%q names no process", why, mainPID, pid)
	}
	if err := syscall.Kill(n, syscall.SIGHUP); err != nil {
		return fmt.Errorf("reload fenced: %w; and signal process %d: %w", why, n, err)
	}
	fmt.Fprintf(stdout, "the daemon was told by a signal, for it cannot be asked (%v): the journal says what became of it\n", why)
	return nil
}
