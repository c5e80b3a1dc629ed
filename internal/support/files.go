package support

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/config"
)

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
	_, err = within(ctx, func(context.Context) ([]config.HostEntry, error) { return config.LoadHosts(cfg) })
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
