package upgrade_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

var write = flag.String("write", "", "directory for the files that the story leaves behind; testdata/README.md says when")

// TestStory plays the story that made the files in testdata, with the code of the present
// version, up to the moment at which the daemon is killed. So the story can be written
// down again with -write for the next release.
func TestStory(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := start(t, w, dir)
		time.Sleep(5 * time.Second)
		checkAll(t, d)
		orderStops(t, d)
		time.Sleep(time.Minute)
		endRuns(t, w, d)
		reachLimits(t, w, d)
		stopInMidRun(t, w, d)
		for host, step := range map[string]remediate.Step{
			isolated: remediate.PowerOn, deleting: remediate.DeleteNode, cutting: remediate.PowerOff,
			restored: remediate.Done, confirmed: remediate.Held, miswired: remediate.Held, lying: remediate.Held, forgiven: remediate.Aborted,
		} {
			r := d.runOn(t, host)
			assert.Equal(t, step, r.Step, "%s: %s %s", host, r.Reason, r.Note)
		}
		left := d.files(t)
		t.Logf("killed at %s", time.Now().UTC().Format(time.RFC3339))
		if *write != "" {
			left[keysFile] = []byte(keys())
			keep(t, *write, left)
		}
		d.stop()
	})
}

// keep writes the files to dir, the state file packed.
func keep(t *testing.T, dir string, files map[string][]byte) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	require.NoError(t, err)
	_, err = z.Write(files[stateFile])
	require.NoError(t, errors.Join(err, z.Close()))
	delete(files, stateFile)
	files[stateFile+".gz"] = packed.Bytes()
	for name, data := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
}

// by is an order about a host.
func by(actor, host, reason string) order.Order {
	return order.Order{Cluster: prod, Node: host, Actor: actor, Reason: reason}
}

// checkAll checks each BMC once, while all is well, and enrolls an outlet.
func checkAll(t *testing.T, d *daemon) {
	for _, s := range d.Inventory(t.Context()) {
		require.NoError(t, s.Err)
		r := bmc.Reading{State: bmc.On, At: time.Now(), Session: 1, Identity: bmc.Identity{UUID: s.SystemUUID, Serial: "SN-" + s.Node}}
		k := hosts.Checked{Subject: s, At: time.Now(), Reading: r, Identity: d.Identify(t.Context(), s, 0, 0, r),
			Description: bmc.Description{Manufacturer: "Maker", Model: "M-" + s.Node, Firmware: "1.0"}}
		require.Equal(t, guard.IdentityMatches, k.Identity, s.Node)
		d.Checked(t.Context(), k)
	}
	_, err := d.Enroll(t.Context(), by("ada (uid 1000)", miswired, "seen on site"))
	require.NoError(t, err)
}

// orderStops gives the orders of people for clusters and hosts that are well.
func orderStops(t *testing.T, d *daemon) {
	inLab := order.Order{Cluster: lab, Actor: "ada (uid 1000)", Reason: "try it"}
	_, err := d.Arming.Arm(t.Context(), inLab)
	require.NoError(t, err)
	inLab.Actor, inLab.Reason, inLab.For = "bob (uid 1001)", "new switches", wire.Span(48*time.Hour)
	_, err = d.Pause(t.Context(), inLab)
	require.NoError(t, err)
	everywhere := order.Order{Actor: "bob (uid 1001)", Reason: "a drill"}
	_, err = d.Pause(t.Context(), everywhere)
	require.NoError(t, err)
	time.Sleep(10 * time.Second)
	_, err = d.Resume(t.Context(), everywhere)
	require.NoError(t, err)
	long := by("carol (uid 1002)", maintained, "a fan is changed")
	long.For = wire.Span(72 * time.Hour)
	_, err = d.Hold(t.Context(), long)
	require.NoError(t, err)
	_, err = d.Hold(t.Context(), by("carol (uid 1002)", handed, "a disk is changed"))
	require.NoError(t, err)
	time.Sleep(10 * time.Second)
	_, err = d.ReleaseHold(t.Context(), by("dan (uid 1003)", handed, "the disk is in"))
	require.NoError(t, err)
}

// endRuns plays the runs that come to an end, or to where they need a person.
func endRuns(t *testing.T, w *world, d *daemon) {
	w.prod.Do(func(s *fake.State) { // its mains are gone
		h := s.Host(confirmed)
		h.Power(false, "mains")
		h.BMC.Fails = &bmc.Error{Kind: bmc.KindUnreachable, Op: "read power state", Addr: "ipmi://" + addressOf(4) + ":623", Err: errors.New("no answer")}
	})
	w.of(confirmed).SetReady("Unknown")
	_, err := d.ConfirmOff(t.Context(), by("ada (uid 1000)", confirmed, "its power supply burnt"))
	require.NoError(t, err)
	w.of(miswired).SetFault(fake.IgnoresOff)
	for _, name := range []string{lying, forgiven} {
		w.of(name).SetLeaseMoving(true)
	}
	for _, name := range []string{restored, quarantined, miswired, lying, forgiven} {
		w.of(name).Hang()
	}
	for w.outlet.On() {
		time.Sleep(time.Second)
	}
	w.outlet.Change(func(o *fake.Outlet) { o.Fault = fake.Deaf }) // no On gets through
	time.Sleep(8 * time.Minute)
	require.Equal(t, remediate.Held, d.runOn(t, forgiven).Step)
	_, err = d.Unfreeze(t.Context(), by("bob (uid 1001)", forgiven, "its BMC has new firmware"))
	require.NoError(t, err)
	as := by("bob (uid 1001)", forgiven, "it is back")
	as.Run, as.AsIs = d.runOn(t, forgiven).ID, true
	_, err = d.Abort(t.Context(), as)
	require.NoError(t, err)
	w.of(forgiven).SetLeaseMoving(false)
	w.of(forgiven).Recover()
}

// reachLimits plays what fenced stops by itself: a host that comes to no rest, and an account
// that a BMC refuses.
func reachLimits(t *testing.T, w *world, d *daemon) {
	require.Equal(t, remediate.Done, d.runOn(t, quarantined).Step)
	w.of(quarantined).Hang()
	w.of(locked).FailReads(&bmc.Error{Kind: bmc.KindAuth, Op: "open session", Addr: "ipmi://" + addressOf(11) + ":623", Err: errors.New("refused")})
	w.of(locked).Hang()
	time.Sleep(3 * time.Minute)
	require.NotEmpty(t, d.Holds(prod))
	_, err := d.log.Export()
	require.NoError(t, err)
}

// stopInMidRun goes on to where the daemon is killed: one host is isolated, one is proven off while
// the API server is away, and one has just taken its Off.
func stopInMidRun(t *testing.T, w *world, d *daemon) {
	w.of(isolated).Hang()
	time.Sleep(20 * time.Second)
	w.of(deleting).Hang()
	time.Sleep(45 * time.Second)
	for w.of(deleting).On() || d.runOn(t, isolated).Step != remediate.PowerOn {
		time.Sleep(200 * time.Millisecond)
	}
	w.of(cutting).Hang()
	_, err := d.Fence(t.Context(), by("ada (uid 1000)", cutting, "it answers nobody"))
	require.NoError(t, err)
	w.prod.OnLook(func(int) { // the API server goes away as soon as that is proven off
		if d.runOn(t, deleting).Step == remediate.DeleteNode {
			w.prod.Do((*fake.State).TakeDown)
		}
	})
	for d.runOn(t, deleting).Step == remediate.PowerOff {
		time.Sleep(200 * time.Millisecond)
	}
	time.Sleep(time.Second)
}
