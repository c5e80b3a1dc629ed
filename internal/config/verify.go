package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// verify finds what no single value shows. origin says where a key was set.
func verify(c Config, origin func(key string) string) []error {
	v := verifier{c: c, origin: origin}
	v.clusters()
	v.state()
	v.deadlines()
	v.directory("hosts", c.Hosts, Default().Hosts)
	v.directory("policies", c.Policies, Default().Policies)
	return v.errs
}

type verifier struct {
	c      Config
	origin func(key string) string
	errs   []error
}

func (v *verifier) fail(key, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: %s: %s", v.origin(key), key, fmt.Sprintf(format, args...)))
}

func (v *verifier) clusters() {
	if len(v.c.Clusters) == 0 {
		where := v.origin("clusters")
		if where == "default" {
			where = v.c.File
		}
		v.errs = append(v.errs, fmt.Errorf("%s: clusters: at least one is needed", where))
	}
	first := map[string]string{}
	for i, cl := range v.c.Clusters {
		at := fmt.Sprintf("clusters[%d]", i)
		v.required(at, "name")
		v.required(at, "kubeconfig")
		v.guarded(at+".kubeconfig", cl.Kubeconfig)
		v.guarded(at+".management.kubeconfig", cl.Management.Kubeconfig)
		if cl.Management.Kubeconfig != "" && cl.Management.ClusterName == "" { // it may manage many: whose Machines are they?
			v.fail(at+".management", "clusterName is missing: it says which of the clusters managed there this one is")
		}
		key := at + ".name"
		if where, ok := first[cl.Name]; ok && cl.Name != "" {
			v.fail(key, "the name %s is taken at %s", cl.Name, where)
			continue
		}
		first[cl.Name] = v.origin(key)
	}
}

// required finds a key that does not occur in the element. One with a bad value
// was reported when it was read, as was an element that is empty.
func (v *verifier) required(element, name string) {
	if v.origin(element) != "default" && v.origin(element+"."+name) == "default" {
		v.fail(element, "%s is missing", name)
	}
}

// guarded refuses a kubeconfig that everybody may write: its writer could point the
// daemon at another cluster. A missing file is reported when it is read.
func (v *verifier) guarded(key, path string) {
	if err := CheckGuarded(path); path != "" && err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		v.fail(key, "%v", err)
	}
}

// CheckDeadlines finds what verify finds wrong with the deadlines, when some of them come from
// the running daemon and others from the files.
func CheckDeadlines(c Config) error {
	v := verifier{c: c, origin: func(string) string { return c.File }}
	v.deadlines()
	return errors.Join(v.errs...)
}

func (v *verifier) deadlines() {
	p := v.c.Power
	v.less("power.offReadSpacing", p.OffReadSpacing, "power.offDeadline", p.OffDeadline)
	v.less("power.offDeadline", p.OffDeadline, "power.runTimeout", p.RunTimeout)
	v.less("power.onDeadline", p.OnDeadline, "power.runTimeout", p.RunTimeout)
}

func (v *verifier) less(key string, d time.Duration, than string, limit time.Duration) {
	if d >= limit {
		v.fail(key, "%s must be less than %s, which is %s", d, than, limit)
	}
}

// directory refuses a configured directory that does not exist. A default one may be
// missing.
func (v *verifier) directory(key, dir, byDefault string) {
	if dir == "" || dir == byDefault {
		return
	}
	fi, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		v.fail(key, "there is no directory %s", dir)
	case err == nil && !fi.IsDir():
		v.fail(key, "%s is not a directory", dir)
	}
}
