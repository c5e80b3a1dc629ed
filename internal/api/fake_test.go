package api

import (
	"context"
	"errors"
	"io"
	"iter"
	"log"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/wire"

	"github.com/stretchr/testify/require"
)

// fake is a daemon that answers what it is told to and keeps the orders.
type fake struct {
	Daemon // what is not answered below

	status  wire.Status
	explain wire.Explanation
	plan    wire.Plan
	covers  wire.Coverage
	runs    wire.Timeline
	bmcs    wire.BMCs
	events  []wire.Event
	result  wire.OrderResult
	export  string
	means   map[wire.Named]wire.Named // what names mean that do not mean themselves
	err     error

	filter wire.RunFilter
	orders []wire.Order
	denied []wire.Order
	codes  []string // why those were refused
	block  *block   // of Do
}

// block makes one Do wait, and tells when it began and ended.
type block struct{ began, until, ended chan struct{} }

func (f *fake) Status(context.Context) (wire.Status, error) { return f.status, f.err }

func (f *fake) Explain(_ context.Context, cluster, node string) (wire.Explanation, error) {
	e := f.explain
	e.Cluster, e.Node = cluster, node
	return e, f.err
}

func (f *fake) Plan(context.Context, string) (wire.Plan, error) { return f.plan, f.err }

func (f *fake) Resolve(_ wire.Wanted, n wire.Named) (wire.Named, error) {
	if means, ok := f.means[n]; ok {
		return means, f.err
	}
	return n, nil
}

func (f *fake) Names(_ context.Context, cluster, prefix string) (wire.Names, error) {
	return wire.Names{Clusters: []string{cluster}, Nodes: []string{prefix + "1"}}, f.err
}

func (f *fake) Coverage(context.Context, string) (wire.Coverage, error) { return f.covers, f.err }

func (f *fake) BMCs(_ context.Context, cluster string) (wire.BMCs, error) {
	f.filter.Cluster = cluster
	return f.bmcs, f.err
}

func (f *fake) LookAtBMCs(_ context.Context, o wire.Order) (wire.BMCs, error) {
	f.orders = append(f.orders, o)
	return f.bmcs, f.err
}

func (f *fake) Runs(_ context.Context, filter wire.RunFilter) (wire.Timeline, error) {
	f.filter = filter
	return f.runs, f.err
}

func (f *fake) Do(ctx context.Context, o wire.Order) (wire.OrderResult, error) {
	if f.block != nil {
		close(f.block.began)
		<-f.block.until
		defer close(f.block.ended)
	}
	if ctx.Err() != nil {
		return wire.OrderResult{}, ctx.Err()
	}
	f.orders = append(f.orders, o)
	return f.result, f.err
}

func (f *fake) Refused(o wire.Order, e *Error) {
	f.denied, f.codes = append(f.denied, o), append(f.codes, e.Code)
}

func (f *fake) Export(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, f.export)
	return errors.Join(err, f.err)
}

func (f *fake) Events(ctx context.Context, after uint64) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for _, e := range f.events {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

// serve runs a server on a socket and gives the socket's path.
func serve(t *testing.T, d Daemon, roles Roles) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	ln, err := Listen(path)
	require.NoError(t, err)
	serveOn(t, ln, d, roles)
	return path
}

func serveOn(t *testing.T, ln net.Listener, d Daemon, roles Roles, twoPersons ...wire.Verb) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(d, roles, log.New(t.Output(), "", 0), twoPersons...).Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Error("the server did not stop")
		}
	})
}

// shortDir is a directory whose path fits a socket address.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fenced")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
