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

// Files of the directory that say how the points in it work.
const (
	// onlyPoints has patterns, one to a line: a point that matches none is passed by.
	onlyPoints = "only"
	// eachNode makes the points of each Node other points, and tosses a coin for each.
	// What the file holds is the seed: the same points kill for the same seed.
	eachNode = "each"
)

// Wrap puts a point before and after all that leaves the engine: each save,
// each command to a device, each write to a cluster and each durable record.
func Wrap(o engine.Options) engine.Options {
	if os.Getenv("FENCED_FAILPOINTS") == "" {
		return o
	}
	b := newLogbook()
	o.Store = failingStore{Store: o.Store, book: b}
	if o.Owners != nil { // else they are made of the store
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
	o.Clusters = slices.Clone(o.Clusters)
	for i := range o.Clusters {
		c := &o.Clusters[i]
		c.Kube = failingKube{c.Kube}
		if c.Checks != nil {
			c.Checks = failingChecks{c.Checks}
		}
	}
	return o
}

// marking is held while a point is marked, and for ever by the one that kills, so
// that no two points mark one death.
var marking sync.Mutex

// reach kills this process with SIGKILL the first time a point is reached
// in the life of the directory FENCED_FAILPOINTS: a marker file per point says
// that it has been passed. Only the tests build with this tag.
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
		_, _ = f.WriteString("spared") // else the marker is its existence
	}
	_ = f.Close()
	if !spared {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// chosen says whether a point may kill.
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
