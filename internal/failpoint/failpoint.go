//go:build failpoint

package failpoint

import (
	"crypto/sha256"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
)

// Files of the directory that configure the points.
const (
	// onlyPoints contains patterns, one per line: a point that matches none does
	// not kill.
	onlyPoints = "only"
	// eachNode makes the points of each Node separate points, each of which kills
	// with a chance of one half. The file contains the seed: the same seed chooses
	// the same points.
	eachNode = "each"
)

// Wrap adds a point before and after every effect of the engine: each save, each
// command to a device and each durable record. WrapCluster does so for a cluster.
func Wrap(o engine.Options) engine.Options {
	if os.Getenv("FENCED_FAILPOINTS") == "" {
		return o
	}
	b := newLogbook()
	o.Store = failingStore{Store: o.Store, book: b}
	if o.Owners != nil { // otherwise they are made from the store
		o.Owners = failingOwners{o.Owners, b}
	}
	if open := o.Open; open != nil {
		o.Open = func(d bmc.Device) (bmc.Power, error) {
			p, err := open(d)
			if err != nil {
				return nil, err
			}
			return failingPower{Power: p, book: b, device: d.Key()}, nil
		}
	}
	if record := o.Record; record != nil {
		o.Record = func(ev event.Event) error { return failingRecord(record, ev) }
	}
	return o
}

// WrapCluster adds a point before and after every write to a cluster. It also lets a test hang its
// deciding loop.
func WrapCluster(o engine.ClusterOptions) engine.ClusterOptions {
	if os.Getenv("FENCED_FAILPOINTS") == "" {
		return o
	}
	o.Kube, o.Watch = failingKube{o.Kube}, hangingWatch{o.Watch}
	if o.Checks != nil {
		o.Checks = failingChecks{o.Checks}
	}
	if o.Requests != nil {
		o.Requests = failingRequests{o.Requests}
	}
	return o
}

// marking is locked while a point writes its marker, and forever by the point
// that kills, so that no two points claim the same kill.
var marking sync.Mutex

// reach kills this process with SIGKILL when a point is reached for the first
// time in the directory FENCED_FAILPOINTS; a marker file per point records that.
// Only tests build with this tag.
func reach(node string, name ...string) {
	dir, point := os.Getenv("FENCED_FAILPOINTS"), strings.Join(slices.DeleteFunc(name, func(s string) bool { return s == "" }), "-")
	if !chosen(dir, point) {
		return
	}
	spared := false
	if seed, err := os.ReadFile(filepath.Join(dir, eachNode)); err == nil {
		point += "@" + node
		spared = sha256.Sum256(append(seed, point...))[0]%2 == 0
	}
	marking.Lock()
	defer marking.Unlock()
	f, err := os.OpenFile(filepath.Join(dir, point), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	if spared {
		_, _ = f.WriteString("spared") // otherwise the marker is empty
	}
	_ = f.Close()
	if !spared {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// chosen reports whether a point may kill.
func chosen(dir, point string) bool {
	text, err := os.ReadFile(filepath.Join(dir, onlyPoints))
	if err != nil { // there is no such list
		return true
	}
	for pattern := range strings.FieldsSeq(string(text)) {
		if ok, _ := path.Match(pattern, point); ok {
			return true
		}
	}
	return false
}
