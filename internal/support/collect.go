package support

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/wire"
)

// journalLines is how many lines of the journal a bundle has at most.
const journalLines = 2000

// Options are whom to ask, and where.
type Options struct {
	Client  *api.Client
	Cluster string // only this one; empty: all
	Config  string // fenced.yaml
	Daemon  string // the program fenced
	Version string // of fencectl
}

// Result is what a bundle holds.
type Result struct {
	Parts []Part `json:"parts"`
	// Daemon is why the daemon answered nothing; empty if it did.
	Daemon string `json:"daemonProblem,omitempty"`
}

// collector writes one bundle.
type collector struct {
	*bundle
	Options
}

// Collect writes a bundle. Its error is one of writing: what cannot be read is a part with a problem.
func Collect(ctx context.Context, o Options, w io.Writer) (Result, error) {
	began := time.Now().UTC()
	c := collector{newBundle(w, began), o}
	limited, cancel := context.WithTimeout(ctx, wholeTime)
	defer cancel()
	c.versions(limited)
	var r Result
	head := "the daemon answered"
	if err := c.askDaemon(limited); err != nil {
		r.Daemon = oneLine(err.Error())
		head = "the daemon did not answer, so its parts are missing: " + r.Daemon
	}
	cfg := c.configuration(limited)
	c.metrics(limited, cfg.Metrics.Listen)
	c.unitAndJournal(limited)
	c.auditHead(limited, cfg.AuditPath())
	if ctx.Err() != nil { // whoever asked for it has gone
		return r, fmt.Errorf("collect the parts: %w", ctx.Err())
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	r.Parts = c.parts
	return r, c.close(fmt.Sprintf("support bundle of fenced on %s, %s, by uid %d\n%s", oneLine(host), began.Format(time.RFC3339), os.Getuid(), head))
}

const (
	// maxTargets bounds the nodes and Machines that are explained.
	maxTargets = 20
	// maxRuns bounds the runs with their steps.
	maxRuns = 50
)

// askDaemon adds what the daemon answers to the role of the caller. If it answers nothing, it is
// asked once. The error is why it has none of these parts.
func (c *collector) askDaemon(ctx context.Context) error {
	status, err := within(ctx, c.Client.Status)
	c.addOr("status.json", status.Body, err)
	if err != nil {
		for _, name := range []string{"bmcs.json", "runs.json", "explain", "timeline"} {
			c.missing(name, errors.New("see status.json"))
		}
		return err
	}
	bmcs, err := within(ctx, func(ctx context.Context) (api.Reply[wire.BMCs], error) { return c.Client.BMCs(ctx, c.Cluster) })
	c.addOr("bmcs.json", bmcs.Body, err)
	c.runs(ctx)
	targets := troubled(status.Value, c.Cluster)
	for _, t := range targets[:min(len(targets), maxTargets)] {
		c.explain(ctx, t)
	}
	if more := len(targets) - maxTargets; more > 0 {
		c.missing("explain, timeline", fmt.Errorf("of %d more nodes and Machines: at most %d are asked for; status.json names all", more, maxTargets))
	}
	return nil
}

// runs adds the newest runs, open and ended.
func (c *collector) runs(ctx context.Context) {
	all, err := within(ctx, func(ctx context.Context) (api.Reply[wire.Timeline], error) {
		return c.Client.Runs(ctx, c.Cluster, time.Time{})
	})
	if err != nil {
		c.missing("runs.json", err)
		return
	}
	list, note := all.Value.Runs, ""
	if more := len(list) - maxRuns; more > 0 {
		list, note = list[more:], fmt.Sprintf("%d older runs are left out", more)
	}
	text, err := json.Marshal(wire.Timeline{Runs: list})
	if err != nil {
		c.missing("runs.json", err)
		return
	}
	c.add("runs.json", append(text, '\n'), note)
}

// target is a Node, or a Machine "namespace/name" that has none.
type target struct{ cluster, of string }

// troubled are the targets of open runs, then those that something forbids to remediate, then those
// that deviate; each once.
func troubled(s wire.Status, cluster string) (list []target) {
	seen := map[target]bool{}
	add := func(in, node, machine string) {
		t := target{in, node}
		if node == "" {
			t.of = machine
		}
		if t.of != "" && !seen[t] && (cluster == "" || cluster == in) {
			seen[t] = true
			list = append(list, t)
		}
	}
	for _, r := range s.Runs {
		add(r.Cluster, r.Node, r.Machine)
	}
	for _, b := range s.Blocked {
		add(b.Cluster, b.Node, b.Machine)
	}
	for _, cl := range s.Clusters {
		for _, d := range cl.Deviating {
			add(cl.Name, d.Node, d.Machine)
		}
	}
	return list
}

// explain adds every gate of one target, and what happened to it.
func (c *collector) explain(ctx context.Context, t target) {
	file := fileName(t.cluster + "/" + strings.ReplaceAll(t.of, "/", "_") + ".json")
	e, err := within(ctx, func(ctx context.Context) (api.Reply[wire.Explanation], error) {
		return c.Client.Explain(ctx, t.cluster, t.of)
	})
	c.addOr("explain/"+file, e.Body, err)
	if strings.Contains(t.of, "/") {
		return // the runs of a Machine without a Node are in runs.json
	}
	r, err := within(ctx, func(ctx context.Context) (api.Reply[wire.Timeline], error) {
		return c.Client.NodeTimeline(ctx, t.cluster, t.of)
	})
	c.addOr("timeline/"+file, r.Body, err)
}

// fileName makes a name of the cluster one of a file in the archive.
func fileName(name string) string {
	name = strings.ReplaceAll(name, "..", "_")
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("/._-", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// configuration adds the files without secrets, what is wrong with them, and what access the files
// and directories have that they name. It gives the configuration, or the defaults where there is none.
func (c *collector) configuration(ctx context.Context) config.Config {
	files, err := within(ctx, func(context.Context) ([]config.RedactedFile, error) { return config.Redacted(c.Config), nil })
	if err != nil {
		c.missing("configuration", err)
	}
	for _, f := range files {
		c.addOr("configuration/"+fileName(f.Name), f.Text, f.Err)
	}
	cfg, err := within(ctx, func(context.Context) (config.Config, error) { return config.Load(c.Config) })
	if err != nil {
		c.add("configuration/errors.txt", []byte(err.Error()+"\n"), "")
		return config.Default()
	}
	_, err = within(ctx, func(context.Context) ([]*config.HostEntry, error) { return config.LoadHosts(cfg) })
	if err != nil {
		c.add("configuration/errors.txt", []byte(err.Error()+"\n"), "")
	}
	text, err := within(ctx, func(context.Context) ([]byte, error) { return access(paths(cfg)), nil })
	c.addOr("configuration/access.txt", text, err)
	return cfg
}

// paths are the files and directories that fenced.yaml names, with those of the state.
func paths(c config.Config) []string {
	all := []string{c.File, c.ConfDir(), c.Hosts, c.Policies, c.State.Path, c.AuditPath(), c.Control.Socket,
		c.State.Etcd.CA, c.State.Etcd.Cert, c.State.Etcd.Key}
	for _, cl := range c.Clusters {
		all = append(all, cl.Kubeconfig, cl.Management.Kubeconfig)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(path string) bool { return path == "" })
}

// access says who may do what with each file, as ls -l does. It opens none.
func access(paths []string) []byte {
	var b strings.Builder
	for _, path := range paths {
		fi, err := os.Lstat(path)
		if err != nil {
			fmt.Fprintf(&b, "%v\n", err)
			continue
		}
		owner := "?"
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			owner = fmt.Sprintf("uid=%d gid=%d", st.Uid, st.Gid)
		}
		fmt.Fprintf(&b, "%s %s %s %s\n", fi.Mode(), owner, fi.ModTime().UTC().Format(time.RFC3339), path)
	}
	return []byte(b.String())
}

// auditHead adds whether the audit log is as it was written, and its last hash.
func (c *collector) auditHead(ctx context.Context, path string) {
	s, err := within(ctx, func(context.Context) (audit.Span, error) { return audit.Verify(path) })
	broken, isBroken := errors.AsType[*audit.Broken](err)
	switch {
	case isBroken:
		c.add("audit.txt", fmt.Appendf(nil, "%v\n", broken), "")
	case errors.Is(err, fs.ErrNotExist):
		c.missing("audit.txt", fmt.Errorf("%w: fenced has written none there", err))
	case err != nil:
		c.missing("audit.txt", fmt.Errorf("%w; fencectl audit verify reads %s without a limit", err, path))
	default:
		c.add("audit.txt", fmt.Appendf(nil, "%s: entries %d to %d are as they were written\nhead %s\nremembered head %s\nbytes of an unfinished line: %d\n",
			path, s.Before.Seq+1, s.Head.Seq, s.Head, s.Remembered, s.Torn), "")
	}
}

// metrics adds what Prometheus would read now.
func (c *collector) metrics(ctx context.Context, listen string) {
	if listen == "" {
		c.missing("metrics.txt", errors.New("metrics.listen is empty in fenced.yaml"))
		return
	}
	text, err := within(ctx, func(ctx context.Context) ([]byte, error) { return scrape(ctx, "http://"+listen+"/metrics") })
	c.addOr("metrics.txt", text, err)
}

func scrape(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy: it is this host
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers with HTTP status %d: another program may use the port", url, resp.StatusCode)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxPart+1)) // one more byte, so that it is known to be cut
}

// maxFact bounds a file with a fact about the host, in bytes.
const maxFact = 64 << 10

// unit is what systemd runs.
const unit = "fenced.service"

// versions adds who runs here.
func (c *collector) versions(ctx context.Context) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "fencectl: %s (%s, %s/%s)\n", c.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	c.fact(ctx, &text, "fenced", func(ctx context.Context) ([]byte, error) { return output(ctx, c.Daemon, "--version") })
	c.fact(ctx, &text, "kernel", func(context.Context) ([]byte, error) { return readFact("/proc/sys/kernel/osrelease") })
	c.fact(ctx, &text, "systemd", func(ctx context.Context) ([]byte, error) { return output(ctx, "systemctl", "--version") })
	c.fact(ctx, &text, "release", func(context.Context) ([]byte, error) {
		text, err := readFact("/etc/os-release")
		for line := range bytes.Lines(text) {
			if name, ok := bytes.CutPrefix(line, []byte("PRETTY_NAME=")); ok {
				return name, nil
			}
		}
		return text, err
	})
	c.add("versions.txt", text.Bytes(), "")
}

// fact writes the first line of what is read.
func (c *collector) fact(ctx context.Context, text *bytes.Buffer, what string, read func(context.Context) ([]byte, error)) {
	found, err := within(ctx, read)
	if err != nil {
		c.missing("versions.txt, "+what, err)
		return
	}
	line, _, _ := strings.Cut(string(found), "\n")
	fmt.Fprintf(text, "%s: %s\n", what, line)
}

// unitAndJournal adds what systemd says about the unit, and its newest lines. The environment of the
// unit is none of it.
func (c *collector) unitAndJournal(ctx context.Context) {
	text, err := within(ctx, func(ctx context.Context) ([]byte, error) {
		return output(ctx, "systemctl", "show", unit, "fenced.socket", "--no-pager", "--property="+
			"Id,LoadState,ActiveState,SubState,Result,UnitFileState,ExecMainStatus,ExecMainStartTimestamp,NRestarts,StatusText,MemoryCurrent,FragmentPath,DropInPaths")
	})
	c.addOr("unit.txt", text, err)
	text, err = within(ctx, func(ctx context.Context) ([]byte, error) {
		return output(ctx, "journalctl", "-u", unit, "-n", fmt.Sprint(journalLines), "-o", "short-iso", "--utc", "--no-pager", "-q")
	})
	if err == nil && len(text) == 0 {
		err = errors.New("journalctl shows no line of " + unit + ": it logged nothing here, or only root and the group systemd-journal may read it")
	}
	c.addOr("journal.txt", text, err)
}

func readFact(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFact))
}

// output is what a program prints. Its last bytes are kept: the newest lines of a journal.
func output(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER=")
	cmd.WaitDelay = time.Second // for a child that keeps the pipe
	var out, errs tail
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if said := oneLine(string(errs.last())); said != "" {
			return nil, fmt.Errorf("run %s: %w: %s", program, err, said)
		}
		return nil, fmt.Errorf("run %s: %w", program, err)
	}
	return out.last(), nil
}

// tail keeps the last maxPart bytes that are written to it, or some more.
type tail struct{ bytes.Buffer }

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.Buffer.Write(p)
	if t.Len() > 2*maxPart {
		t.Next(t.Len() - maxPart)
	}
	return len(p), nil
}

// last are at most maxPart bytes that begin with a line.
func (t *tail) last() []byte {
	if t.Len() <= maxPart {
		return t.Bytes()
	}
	t.Next(t.Len() - maxPart)
	_, rest, _ := bytes.Cut(t.Bytes(), []byte("\n"))
	return rest
}
