package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/wire"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fencectl": main, "eventd": eventd})
}

// TestScript runs the real program; see testdata/script.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error { // the fenced.yaml of the package
			reference, err := filepath.Abs("../../configs/fenced.yaml")
			e.Setenv("REFERENCE", reference)
			if program, err := exec.LookPath("fencectl"); err == nil { // for a script with a PATH of its own
				e.Setenv("FENCECTL", program)
			}
			e.Setenv("GORACE", "atexit_sleep_ms=10") // the race detector would let each fencectl sleep for 1 s at its end
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": cmdDaemon,
			"raw":    cmdRaw,
			"silent": cmdSilent,
			"exits":  cmdExits,
		},
	})
}

// cmdDaemon starts a daemon on the socket `s` that answers from a fixture and
// appends its orders to the file `orders`.
func cmdDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: daemon FIXTURE.json")
	}
	stop, err := startDaemon([]byte(ts.ReadFile(args[0])), ts.MkAbs("s"), ts.MkAbs("orders"))
	ts.Check(err)
	ts.Defer(func() { ts.Check(stop()) })
}

// cmdRaw serves a file on the socket `s`, whatever is asked.
func cmdRaw(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: raw FILE")
	}
	stop, err := startRaw([]byte(ts.ReadFile(args[0])), ts.MkAbs("s"))
	ts.Check(err)
	ts.Defer(func() { ts.Check(stop()) })
}

// cmdSilent makes a socket `s` on which nobody answers, as when the daemon is stopped.
func cmdSilent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: silent")
	}
	ln, err := net.Listen("unix", ts.MkAbs("s"))
	ts.Check(err)
	ts.Defer(func() { ts.Check(ln.Close()) })
}

// cmdExits runs a program and wants its exit status.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// scripted is a daemon that answers from a fixture.
type scripted struct {
	api.Daemon `json:"-"` // what is not answered below

	StatusIs  wire.Status       `json:"status"`
	ExplainIs wire.Explanation  `json:"explain"`
	PlanIs    wire.Plan         `json:"plan"`
	CoversIs  wire.Coverage     `json:"coverage"`
	NamesAre  wire.Names        `json:"names"`
	BMCsAre   wire.BMCs         `json:"bmcs"`
	NodesAre  wire.Nodes        `json:"nodes"`
	LookIs    wire.BMCs         `json:"look"`
	ExportIs  string            `json:"export"`
	ReportIs  wire.PeriodReport `json:"report"`
	EventsAre []wire.Event      `json:"events"`
	History   []wire.RunRecord  `json:"history"`
	// Notes and Blocked are those of any timeline of one node.
	Notes   []wire.Note    `json:"notes"`
	Blocked []wire.Blocked `json:"blocked"`
	// Frames are what reading the run of Result gives, one after the other.
	Frames []wire.RunRecord `json:"frames"`
	Result wire.OrderResult `json:"result"`
	DryRun wire.OrderResult `json:"dryRun"`
	Error  struct {
		Status int `json:"status"`
		api.Error
	} `json:"error"`

	mu     sync.Mutex
	seen   int       // frames given
	orders *os.File  // a line for each order
	wake   chan bool // an event for each frame
}

func (d *scripted) fault() error {
	if d.Error.Status == 0 {
		return nil
	}
	e := d.Error.Error
	e.Status = d.Error.Status
	return &e
}

// Status gives the fixture's status.
func (d *scripted) Status(context.Context) (wire.Status, error) { return d.StatusIs, d.fault() }

// Explain gives the fixture's explanation.
func (d *scripted) Explain(context.Context, string, string) (wire.Explanation, error) {
	return d.ExplainIs, d.fault()
}

// Plan gives the fixture's plan.
func (d *scripted) Plan(context.Context, string) (wire.Plan, error) { return d.PlanIs, d.fault() }

// Coverage gives the fixture's coverage.
func (d *scripted) Coverage(context.Context, string) (wire.Coverage, error) {
	return d.CoversIs, d.fault()
}

// OnlyCluster is none: the fixture has several.
func (d *scripted) OnlyCluster() string { return "" }

// Resolve knows the runs of the history.
func (d *scripted) Resolve(want wire.Wanted, n wire.Named) (wire.Named, error) {
	for _, r := range d.History {
		switch {
		case want == wire.WantRun && n.Run == r.Node:
			return wire.Named{Cluster: r.Cluster, Run: r.ID}, nil
		case want == wire.WantAny && n.Node == r.ID:
			return wire.Named{Cluster: r.Cluster, Run: r.ID}, nil
		case n.Node == r.ID, want == wire.WantNode && n.Machine == r.Machine && n.Machine != "":
			return wire.Named{Cluster: r.Cluster, Node: r.Node}, nil
		}
	}
	return n, nil
}

// Names gives the fixture's names, whatever they begin with.
func (d *scripted) Names(context.Context, string, string) (wire.Names, error) {
	return d.NamesAre, d.fault()
}

// BMCs gives the fixture's devices.
func (d *scripted) BMCs(context.Context, wire.BMCFilter) (wire.BMCs, error) {
	return d.BMCsAre, d.fault()
}

// Nodes gives the fixture's Nodes.
func (d *scripted) Nodes(context.Context, wire.NodesFilter) (wire.Nodes, error) {
	return d.NodesAre, d.fault()
}

// LookAtBMCs notes the order and gives what the fixture's look finds.
func (d *scripted) LookAtBMCs(_ context.Context, o wire.Order) (wire.BMCs, error) {
	fmt.Fprintf(d.orders, "%s cluster=%s node=%s\n", o.Verb, o.Cluster, o.Node)
	return d.LookIs, d.fault()
}

// Runs gives the history, or the next frame of a run.
func (d *scripted) Runs(_ context.Context, f wire.RunFilter) (wire.Timeline, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.ID != "" && len(d.Frames) > 0 && f.ID == d.Frames[0].ID {
		frame := d.Frames[min(d.seen, len(d.Frames)-1)]
		d.seen++
		select {
		case d.wake <- true:
		default:
		}
		return wire.Timeline{Runs: []wire.RunRecord{frame}}, nil
	}
	var tl wire.Timeline
	for _, r := range d.History {
		if (f.ID == "" || f.ID == r.ID) && (f.Node == "" || f.Node == r.Node) && (f.Machine == "" || f.Machine == r.Machine) && !r.Started.Before(f.Since) {
			tl.Runs = append(tl.Runs, r)
		}
	}
	if f.Node != "" {
		tl.Notes, tl.Blocked = d.Notes, d.Blocked
	}
	return tl, d.fault()
}

func (d *scripted) Do(_ context.Context, o wire.Order) (wire.OrderResult, error) {
	of := "node=" + o.Node
	if o.Machine != "" {
		of = "machine=" + o.Machine
	}
	fmt.Fprintf(d.orders, "%s cluster=%s %s reason=%q offOnly=%t yes=%t dryRun=%t", o.Verb, o.Cluster, of, o.Reason, o.OffOnly, o.Yes, o.DryRun)
	if o.Run != "" {
		fmt.Fprintf(d.orders, " run=%s asIs=%t", o.Run, o.AsIs)
	}
	if o.For != 0 {
		fmt.Fprintf(d.orders, " for=%s", time.Duration(o.For))
	}
	if o.Group.IsGiven() {
		fmt.Fprintf(d.orders, " selector=%s zone=%s rack=%s", o.Selector, o.Zone, o.Rack)
	}
	if o.Typed != "" {
		fmt.Fprintf(d.orders, " typed=%s", o.Typed)
	}
	if o.Shown != "" {
		fmt.Fprintf(d.orders, " shown=%q", o.Shown)
	}
	fmt.Fprintln(d.orders)
	if o.DryRun {
		return d.DryRun, d.fault()
	}
	return d.Result, d.fault()
}

// Refused is of no interest here.
func (d *scripted) Refused(wire.Order, *api.Error) {}

// Export gives the fixture's export.
func (d *scripted) Export(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, d.ExportIs)
	return errors.Join(err, d.fault())
}

func (d *scripted) Audit(context.Context, audit.Query, func(audit.Entry) error, func(audit.Break) error) error {
	return d.fault()
}

func (d *scripted) Stream() string { return "scripted" }

// Report gives the fixture's report, of the period that was asked for.
func (d *scripted) Report(_ context.Context, cluster string, since, until time.Time) (wire.PeriodReport, error) {
	r := d.ReportIs
	r.Cluster = cluster
	if r.Since.IsZero() {
		r.Since, r.Until = since, until
	}
	return r, d.fault()
}

// Events gives those of the fixture, then tells that a frame was read.
func (d *scripted) Events(ctx context.Context, _ uint64) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for _, e := range d.EventsAre {
			if !yield(e, nil) {
				return
			}
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.wake:
				if !yield(wire.Event{Run: d.Result.Run, Type: "StepEntered"}, nil) {
					return
				}
			}
		}
	}
}

// startDaemon serves the fixture on a socket; orders are written to a file.
func startDaemon(fixture []byte, socket, orders string) (stop func() error, err error) {
	d := &scripted{wake: make(chan bool, 1)}
	dec := json.NewDecoder(bytes.NewReader(fixture))
	dec.DisallowUnknownFields()
	if err := dec.Decode(d); err != nil {
		return nil, fmt.Errorf("decode the fixture: %w", err)
	}
	if d.orders, err = os.Create(orders); err != nil {
		return nil, err
	}
	ln, err := api.Listen(socket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- api.NewServer(d, api.Roles{}, log.New(os.Stderr, "daemon: ", 0)).Serve(ctx, ln)
	}()
	return func() error {
		cancel()
		err := <-served
		return errors.Join(err, d.orders.Close())
	}, nil
}

// startRaw serves fixed bytes for every request: a daemon of another version.
func startRaw(body []byte, socket string) (stop func() error, err error) {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	srv := &http.Server{ReadHeaderTimeout: 2 * time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(body) // the client's view of it is what is tested
	})}
	go func() { _ = srv.Serve(ln) }() // ends with Close
	return srv.Close, nil
}

// TestUI runs the real program: the address that it prints opens the page once, its token stands in no command line and no
// environment, and the page ends with the command.
func TestUI(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	stop, err := startDaemon([]byte(`{"status":{"version":"1.2.3","armed":true},"nodes":{"nodes":[{"cluster":"prod","node":"n-1","state":"Held","checks":[],"bmcs":[]}]}}`), socket, filepath.Join(dir, "orders"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, stop()) }()
	program := filepath.Join(dir, "fencectl") // testscript.Main runs main under this name
	own, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(own, program))
	cmd := exec.Command(program, "--socket", socket, "ui")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	address := ""
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		address = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/\?token=\S+`).FindString(lines.Text())
	}
	require.NotEmpty(t, address)
	_, token, _ := strings.Cut(address, "token=")
	for _, of := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, of))
		require.NoError(t, err)
		assert.NotContains(t, string(text), token, of)
	}
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, want := range []int{http.StatusSeeOther, http.StatusForbidden} {
		resp, err := browser.Get(address)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, want, resp.StatusCode)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	assert.NoError(t, cmd.Wait(), "Ctrl-C is how it ends: exit status 0")
	_, err = browser.Get(address)
	assert.Error(t, err)
}
