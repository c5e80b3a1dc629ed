// Package etcdstore keeps the state in an etcd that several instances of fenced share, and
// decides which of them owns which cluster.
package etcdstore

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/state"
)

// Config says where an etcd cluster is and how to sign in to it.
type Config struct {
	Endpoints []string
	// CA, Cert and Key are files; they are read again for each connection.
	CA, Cert, Key string
	// Prefix is in front of every key; several stores may share one etcd.
	Prefix      string
	DialTimeout time.Duration // how long opening waits; 5 s if zero
}

const (
	// attemptTimeout ends one request to one member, so that the next goes to
	// another: a member that hangs keeps its connection for ten seconds and more.
	attemptTimeout = 2 * time.Second
	// callTimeout ends one call of a Store, all attempts together.
	callTimeout = 6 * time.Second
	// connectionPing finds a connection that is dead; gRPC allows no less.
	connectionPing = 10 * time.Second
	// page is how many records one request lists.
	page = 64
)

// store keeps the records below <prefix>rec/<kind>/<key>. All reads are
// linearizable: a record that another instance saved is never overlooked.
type store struct {
	client *clientv3.Client
	prefix string
	// writer is in front of the nonce of everything that this store writes.
	writer   [8]byte
	doubts   uncertainWrites
	watchers watchers
	close    func() error
}

// Open opens the store below the prefix in an etcd cluster, and makes it if
// nothing is there. One of a newer schema is ErrFuture and stays as it is.
func Open(ctx context.Context, c Config) (state.Store, error) {
	s, err := openEtcd(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open the state in etcd at %s: %w", strings.Join(c.Endpoints, ", "), err)
	}
	return s, nil
}

func openEtcd(ctx context.Context, c Config) (*store, error) {
	secure, err := etcdTLS(c)
	if err != nil {
		return nil, err
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 5 * time.Second
	}
	if len(c.Endpoints) == 0 || c.Prefix == "" {
		return nil, errors.New("it needs endpoints and a prefix")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: secure, DialTimeout: c.DialTimeout,
		DialKeepAliveTime: connectionPing, DialKeepAliveTimeout: 3 * time.Second,
		// What goes wrong comes back as an error; the client would log it besides.
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	s := &store{client: client, prefix: strings.TrimSuffix(c.Prefix, "/") + "/", close: sync.OnceValue(client.Close)}
	if _, err := rand.Read(s.writer[:]); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	opening, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	if err := s.prepare(opening); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if _, err := state.ID(opening, s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func etcdTLS(c Config) (*tls.Config, error) {
	isTLS := func(e string) bool { return strings.HasPrefix(e, "https://") }
	if !slices.ContainsFunc(c.Endpoints, isTLS) {
		return nil, nil
	}
	conf, err := transport.TLSInfo{CertFile: c.Cert, KeyFile: c.Key, TrustedCAFile: c.CA}.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the certificates: %w", err)
	}
	return conf, nil
}

// prepare checks the schema, or writes it where nothing is.
func (s *store) prepare(ctx context.Context) error {
	key, now := s.schemaKey(), strconv.Itoa(state.Schema)
	return s.try(ctx, func(ctx context.Context) error {
		found, err := s.client.Get(ctx, key)
		if err != nil {
			return err
		}
		if len(found.Kvs) == 1 {
			return conclude(checkSchema(found.Kvs[0].Value))
		}
		// At the moment of that look: another instance may have begun to write since.
		all, err := s.client.Get(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly(), clientv3.WithRev(found.Header.Revision))
		if err != nil {
			return err
		}
		if len(all.Kvs) > 0 {
			return conclude(fmt.Errorf("below %s are the keys of another program", s.prefix))
		}
		// Another instance may be quicker; what it wrote is checked by the next look.
		resp, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, now)).Else(clientv3.OpGet(key)).Commit()
		if err != nil || resp.Succeeded {
			return err
		}
		return conclude(checkSchema(resp.Responses[0].GetResponseRange().Kvs[0].Value))
	})
}

// checkSchema: etcd knows no schema before 3, so any other but ours is newer or damaged.
func checkSchema(value []byte) error {
	n, err := strconv.Atoi(string(value))
	switch {
	case err != nil || n < state.Schema:
		return fmt.Errorf("its schema %q is not one that was ever written", value)
	case n > state.Schema:
		return fmt.Errorf("schema %d, this program knows %d: %w; install that version again", n, state.Schema, state.ErrFuture)
	}
	return nil
}

func (s *store) schemaKey() string { return s.prefix + "schema" }

func (s *store) kindPrefix(kind state.Kind) string { return s.prefix + "rec/" + string(kind) + "/" }

func (s *store) Get(ctx context.Context, kind state.Kind, key string) (state.Record, error) {
	r, err := s.get(ctx, kind, key)
	if err != nil {
		return state.Record{}, fmt.Errorf("get %s: %w", state.RecordName(kind, key), err)
	}
	return r, nil
}

func (s *store) get(ctx context.Context, kind state.Kind, key string) (r state.Record, err error) {
	if err := state.CheckKind(kind); err != nil {
		return state.Record{}, err
	}
	err = s.try(ctx, func(ctx context.Context) error {
		resp, err := s.client.Get(ctx, s.kindPrefix(kind)+key)
		if err != nil {
			return err
		}
		if len(resp.Kvs) == 0 {
			return conclude(state.ErrNotFound)
		}
		r, err = s.unpack(ctx, kind, resp.Kvs[0], resp.Header.Revision)
		return err
	})
	return r, err
}

func (s *store) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	if err := state.CheckKind(kind); err != nil {
		return nil, fmt.Errorf("list %s records: %w", kind, err)
	}
	var list []state.Record
	from, revision := s.kindPrefix(kind), int64(0)
	end := clientv3.GetPrefixRangeEnd(from)
	for more := true; more; {
		// All pages are of the revision of the first: one moment, as in one transaction.
		err := s.try(ctx, func(ctx context.Context) error {
			resp, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(revision))
			if err != nil {
				return err
			}
			at := resp.Header.Revision
			if revision > 0 {
				at = revision
			}
			var found []state.Record
			for _, kv := range resp.Kvs {
				r, err := s.unpack(ctx, kind, kv, at)
				if err != nil {
					return err
				}
				found = append(found, r)
			}
			list, revision, more = append(list, found...), at, resp.More
			if more {
				from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list %s records: %w", kind, err)
		}
	}
	return list, nil
}

// Close implements state.Store.
func (s *store) Close() error {
	err := s.close()
	if errors.Is(err, context.Canceled) {
		return nil // how the client says that it was closed
	}
	return err
}
