package etcdstore_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/etcdstore"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

func TestEtcdConformance(t *testing.T) {
	statetest.Run(t, statetest.Engine{
		NewPath: func(t *testing.T) string { return etcdPath(sharedEtcd(t), newPrefix()) },
		Open:    openEtcdAt,
		Soak:    dice.Soak(),
	})
}

// More records than one request lists are listed once each, in order: pins, of which there are many, and others.
func TestManyRecordsAreListed(t *testing.T) {
	t.Parallel()
	s := openEtcd(t, sharedEtcd(t), newPrefix())
	for kind, n := range map[state.Kind]int{state.KindPin: 1100, state.KindHold: 130} {
		var g errgroup.Group
		g.SetLimit(64)
		var want, got []string
		for i := range n {
			key := fmt.Sprintf("%05d", i)
			want = append(want, key)
			g.Go(func() error {
				_, err := s.Put(t.Context(), state.Record{Kind: kind, Key: key})
				return err
			})
		}
		require.NoError(t, g.Wait())
		for _, r := range must.Do(s.List(t.Context(), kind))(t) {
			got = append(got, r.Key)
		}
		assert.Equal(t, want, got)
	}
}

func TestEtcdRefusesOtherStores(t *testing.T) {
	t.Parallel()
	c := sharedEtcd(t)
	client := etcdClient(t, c)
	open := func(prefix string) error {
		s, err := openEtcdAt(etcdPath(c, prefix))
		if err == nil {
			require.NoError(t, s.Close())
		}
		return err
	}
	put := func(key, value string) {
		must.Do(client.Put(t.Context(), key, value))(t)
	}
	prefix := newPrefix()
	s := openEtcd(t, c, prefix)
	put(prefix+"schema", "4")
	err := open(prefix)
	require.ErrorIs(t, err, state.ErrFuture)
	require.ErrorContains(t, err, "schema 4, this program knows 3")
	// A store that was open before the newer fenced started writes nothing more. // I20
	_, err = s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r"})
	require.ErrorIs(t, err, state.ErrFuture)
	put(prefix+"schema", "none")
	require.ErrorContains(t, open(prefix), "schema")

	other := newPrefix()
	put(other+"photos", "1")
	require.ErrorContains(t, open(other), "another program")
	require.Error(t, open(""), "no prefix")
	_, err = etcdstore.Open(t.Context(), etcdstore.Config{Prefix: "/x/"})
	require.Error(t, err, "no endpoints")
}

// If several instances start at the same time, the first one creates the store.
func TestEtcdIsMadeByOneOfMany(t *testing.T) {
	t.Parallel()
	c := sharedEtcd(t)
	for range 20 {
		prefix := newPrefix()
		var opening errgroup.Group
		for i := range 5 {
			opening.Go(func() error {
				s, err := openEtcdAt(etcdPath(c, prefix))
				if err != nil {
					return err
				}
				_, err = s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: fmt.Sprint("r-", i)})
				return errors.Join(err, s.Close())
			})
		}
		require.NoError(t, opening.Wait())
	}
}

func TestEtcdDamagedValues(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	s, client := openEtcd(t, c, prefix), etcdClient(t, c)
	must.Do(client.Put(t.Context(), prefix+"rec/run/r", "?"))(t)
	_, err := s.Get(t.Context(), state.KindRun, "r")
	require.ErrorContains(t, err, "damaged")
	must.Do(s.Put(t.Context(), state.Record{Kind: state.KindBackup, Key: "b", Data: make([]byte, 2<<20)}))(t)
	must.Do(client.Delete(t.Context(), prefix+"part/", clientv3.WithPrefix()))(t)
	_, err = s.Get(t.Context(), state.KindBackup, "b")
	require.ErrorContains(t, err, "damaged: 0 of 4 parts")
	_, err = s.List(t.Context(), state.KindBackup)
	require.ErrorContains(t, err, "damaged")
}

// Large records are written and deleted with all their parts. No part is left.
func TestEtcdParts(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	s, client := openEtcd(t, c, prefix), etcdClient(t, c)
	parts := func() int64 {
		resp := must.Do(client.Get(t.Context(), prefix+"part/", clientv3.WithPrefix(), clientv3.WithCountOnly()))(t)
		return resp.Count
	}
	r := state.Record{Kind: state.KindBackup, Key: "a", Data: bytes.Repeat([]byte("x"), 1<<20)}
	other := state.Record{Kind: state.KindBackup, Key: "a/b", Data: bytes.Repeat([]byte("y"), 1<<20)}
	var err error
	r.Version, err = s.Put(t.Context(), r)
	require.NoError(t, err)
	_, err = s.Put(t.Context(), other)
	require.NoError(t, err)
	require.EqualValues(t, 4, parts())
	_, err = s.Put(t.Context(), state.Record{Kind: r.Kind, Key: r.Key, Data: r.Data})
	require.ErrorIs(t, err, state.ErrExists)
	got, err := s.Get(t.Context(), r.Kind, r.Key)
	require.NoError(t, err)
	require.True(t, bytes.Equal(r.Data, got.Data), "a refused write harms nothing")

	r.Data = bytes.Repeat([]byte("z"), 3<<19)
	r.Version, err = s.Put(t.Context(), r)
	require.NoError(t, err)
	got, err = s.Get(t.Context(), r.Kind, r.Key)
	require.NoError(t, err)
	require.True(t, bytes.Equal(r.Data, got.Data))
	r.Data = []byte("small")
	r.Version, err = s.Put(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, s.Delete(t.Context(), r.Kind, r.Key, r.Version))
	all := must.Do(s.List(t.Context(), state.KindBackup))(t)
	require.Len(t, all, 1)
	require.True(t, bytes.Equal(other.Data, all[0].Data), "the other record has its own parts")
	leases := must.Do(client.Leases(t.Context()))(t)
	for _, l := range leases.Leases {
		ttl := must.Do(client.TimeToLive(t.Context(), l.ID, clientv3.WithAttachedKeys()))(t)
		for _, key := range ttl.Keys {
			require.False(t, bytes.HasPrefix(key, []byte(prefix)) && bytes.Contains(key, []byte(hex.EncodeToString([]byte("a/b")))),
				"a part that a record points to would run out with its lease")
		}
	}
}

func TestEtcdListOfManyPages(t *testing.T) {
	t.Parallel()
	s := openEtcd(t, sharedEtcd(t), newPrefix())
	for i := range 150 {
		must.Do(s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: fmt.Sprintf("%03d", i)}))(t)
	}
	all := must.Do(s.List(t.Context(), state.KindRun))(t)
	require.Len(t, all, 150)
	for i, r := range all {
		require.Equal(t, fmt.Sprintf("%03d", i), r.Key)
	}
}

func TestEtcdWithTLS(t *testing.T) {
	t.Parallel()
	c := ownEtcd(t, rig.EtcdOptions{Members: 1, TLS: true})
	conf := etcdstore.Config{Endpoints: c.Endpoints(), Prefix: "/fenced", CA: c.CA(), Cert: c.Cert(), Key: c.Key(), DialTimeout: time.Minute}
	s := must.Do(etcdstore.Open(t.Context(), conf))(t)
	must.Do(state.SavePin(t.Context(), s, state.Pin{Host: "prod/n"}))(t)
	require.NoError(t, s.Close())

	conf.DialTimeout = 2 * time.Second
	conf.Cert, conf.Key = "", ""
	_, err := etcdstore.Open(t.Context(), conf)
	require.ErrorContains(t, err, c.Endpoints()[0], "it asks for a client's certificate")
	conf.CA = "/nowhere"
	_, err = etcdstore.Open(t.Context(), conf)
	require.ErrorContains(t, err, "/nowhere")
}

func openBolt(t *testing.T) state.Store {
	t.Helper()
	s := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// An export moves every record from bbolt to etcd and back to bbolt. Open runs stay open.
func TestExportMovesBetweenEngines(t *testing.T) {
	t.Parallel()
	from, through, to := openBolt(t), openEtcd(t, sharedEtcd(t), newPrefix()), openBolt(t)
	statetest.Fill(t, from, 400<<10) // base64 makes it too large for one key of etcd
	want := statetest.Records(t, from)
	for _, step := range [][2]state.Store{{from, through}, {through, to}} {
		n := must.Do(state.Import(t.Context(), step[1], bytes.NewReader(statetest.Export(t, step[0]))))(t)
		require.Len(t, want, n)
		require.Equal(t, want, statetest.Records(t, step[1]))
		require.NoError(t, state.CheckComplete(t.Context(), step[1]))
	}
	runs := must.Do(state.LoadRuns(t.Context(), to))(t)
	require.Len(t, runs, 1)
	require.True(t, runs[0].Open())
	first := must.Do(state.ID(t.Context(), from))(t)
	second := must.Do(state.ID(t.Context(), to))(t)
	require.NotEqual(t, first, second, "another store has another id")
}

func TestImportIntoAStoreInUse(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod"}, keepClaim)
	a.awaitClaim(t, "prod")
	_, err := state.Import(t.Context(), openEtcd(t, c, prefix), bytes.NewReader(statetest.Export(t, openBolt(t))))
	require.ErrorIs(t, err, state.ErrLocked)
	require.ErrorContains(t, err, `"a"`)
}
