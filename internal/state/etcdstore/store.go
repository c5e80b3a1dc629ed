// Package etcdstore keeps the state in an etcd that several instances of fenced share, and
// decides which instance owns which cluster.
//
// In this package a member is a member of the etcd cluster, and an instance is one fenced.
// A revision, a lease and a session are those of etcd.
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

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/state"
)

// Config says where an etcd cluster is and how to authenticate to it.
type Config struct {
	Endpoints []string
	// CA, Cert and Key are paths of PEM files. They are read again for each connection.
	CA, Cert, Key string
	// Prefix begins every key. Stores with different prefixes can share one etcd.
	Prefix      string
	DialTimeout time.Duration // the longest time that Open takes; 5 s if zero
}

// defaultCallTimeout is the callTimeout of a store. Only the tests change it.
var defaultCallTimeout = 6 * time.Second

const (
	// attemptTimeout ends one request to one member, so that the next request goes to
	// another: a member that hangs keeps its connection for more than ten seconds.
	attemptTimeout = 2 * time.Second
	// connectionPing is the interval of the pings that detect a dead connection. It is
	// the shortest that gRPC allows.
	connectionPing = 10 * time.Second
	// pageSize is the number of records that one request lists. Pins are small, and there is one
	// for each host.
	pageSize, pinPageSize = 64, 1024
)

// store is a state.Store. It keeps each record under <prefix>rec/<kind>/<key>. All reads are
// linearizable, so a read returns what any other instance has saved before.
type store struct {
	client *clientv3.Client
	prefix string
	// writerID begins the nonce of every value that this store writes.
	writerID    [8]byte
	callTimeout time.Duration // ends one call, with all its attempts
	uncertain   uncertainWrites
	watchers    watchers
	close       func() error
}

// Open opens the store below the prefix in an etcd cluster, or creates it there. It returns
// state.ErrFuture if the store has a newer schema. It also refuses a prefix below which there
// are keys of another program. A refused store is not changed.
func Open(ctx context.Context, c Config) (state.Store, error) {
	s, err := openEtcd(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open the state in etcd at %s: %w", strings.Join(c.Endpoints, ", "), err)
	}
	return s, nil
}

func openEtcd(ctx context.Context, c Config) (*store, error) {
	secure, err := tlsConfig(c)
	if err != nil {
		return nil, err
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 5 * time.Second
	}
	if len(c.Endpoints) == 0 || c.Prefix == "" {
		return nil, errors.New("endpoints and a prefix are required")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: secure, DialTimeout: c.DialTimeout,
		DialKeepAliveTime: connectionPing, DialKeepAliveTimeout: 3 * time.Second,
		// Failures come back as errors. The client would also log them.
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	s := &store{
		client: client, prefix: strings.TrimSuffix(c.Prefix, "/") + "/", callTimeout: defaultCallTimeout, close: sync.OnceValue(client.Close),
	}
	if _, err := rand.Read(s.writerID[:]); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	opening, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	if err := s.prepareSchema(opening); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if _, err := state.ID(opening, s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// tlsConfig returns nil if no endpoint uses TLS.
func tlsConfig(c Config) (*tls.Config, error) {
	usesTLS := func(e string) bool { return strings.HasPrefix(e, "https://") }
	if !slices.ContainsFunc(c.Endpoints, usesTLS) {
		return nil, nil
	}
	conf, err := transport.TLSInfo{CertFile: c.Cert, KeyFile: c.Key, TrustedCAFile: c.CA}.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the certificates: %w", err)
	}
	return conf, nil
}

// prepareSchema checks the schema, or writes it if there is no key below the prefix.
func (s *store) prepareSchema(ctx context.Context) error {
	key, now := s.schemaKey(), strconv.Itoa(state.Schema)
	return s.retry(ctx, func(ctx context.Context) error {
		found, err := s.client.Get(ctx, key)
		if err != nil {
			return err
		}
		if len(found.Kvs) == 1 {
			return final(checkSchema(found.Kvs[0].Value))
		}
		// Read at the revision of that read: another instance may write in between.
		all, err := s.client.Get(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly(), clientv3.WithRev(found.Header.Revision))
		if err != nil {
			return err
		}
		if len(all.Kvs) > 0 {
			return final(fmt.Errorf("the keys below %s belong to another program", s.prefix))
		}
		// Another instance may be faster. Then the schema that it wrote is checked.
		resp, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, now)).Else(clientv3.OpGet(key)).Commit()
		if err != nil || resp.Succeeded {
			return err
		}
		return final(checkSchema(resp.Responses[0].GetResponseRange().Kvs[0].Value))
	})
}

// checkSchema refuses every schema but the present one: another
// one is newer or damaged.
func checkSchema(value []byte) error {
	n, err := strconv.Atoi(string(value))
	switch {
	case err != nil || n < state.Schema:
		return fmt.Errorf("no fenced has written the schema %q", value)
	case n > state.Schema:
		return fmt.Errorf("schema %d, this program knows %d: %w; install that version again", n, state.Schema, state.ErrFuture)
	}
	return nil
}

func (s *store) schemaKey() string { return s.prefix + "schema" }

// kindPrefix begins the keys of all records of a kind.
func (s *store) kindPrefix(kind state.Kind) string { return s.prefix + "rec/" + string(kind) + "/" }

// Get implements state.Store.
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
	err = s.retry(ctx, func(ctx context.Context) error {
		resp, err := s.client.Get(ctx, s.kindPrefix(kind)+key)
		if err != nil {
			return err
		}
		if len(resp.Kvs) == 0 {
			return final(state.ErrNotFound)
		}
		r, err = s.unpack(ctx, kind, resp.Kvs[0], resp.Header.Revision)
		return err
	})
	return r, err
}

// List implements state.Store.
func (s *store) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	return s.ListAfter(ctx, kind, 0)
}

// ListAfter implements state.Tracking. etcd compares the versions, so that it sends only what has changed, if that fits in one page.
func (s *store) ListAfter(ctx context.Context, kind state.Kind, version uint64) ([]state.Record, error) {
	if err := state.CheckKind(kind); err != nil {
		return nil, fmt.Errorf("list %s records: %w", kind, err)
	}
	var list []state.Record
	from, revision, limit := s.kindPrefix(kind), int64(0), int64(pageSize)
	if kind == state.KindPin {
		limit = pinPageSize
	}
	ops := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(from)), clientv3.WithLimit(limit)}
	if version > 0 {
		ops = append(ops, clientv3.WithMinModRev(int64(version)+1))
	}
	for more := true; more; {
		// All pages are read at the revision of the first one, as in one transaction.
		err := s.retry(ctx, func(ctx context.Context) error {
			resp, err := s.client.Get(ctx, from, append(slices.Clip(ops), clientv3.WithRev(revision))...)
			if err != nil {
				return err
			}
			at := resp.Header.Revision
			if revision > 0 {
				at = revision
			}
			var found []state.Record
			for _, kv := range resp.Kvs {
				if uint64(kv.ModRevision) <= version {
					continue
				}
				r, err := s.unpack(ctx, kind, kv, at)
				if err != nil {
					return err
				}
				found = append(found, r)
			}
			list, revision, more = append(list, found...), at, resp.More
			if more {
				ops = ops[:2] // with the filter etcd reads all that follows, for each page
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
		return nil // the client was closed before
	}
	return err
}

var errClosed = errors.New("the store is closed")

// retryableErrors are the errors of a member after which another attempt may succeed.
var retryableErrors = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrStopped, rpctypes.ErrTimeout,
	rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutWaitAppliedIndex,
	rpctypes.ErrUnhealthy, rpctypes.ErrTooManyRequests,
}

// retry calls do until it succeeds or fails with an error that is not retryable, but for
// callTimeout at most. do must be idempotent: after an attempt that failed, etcd may still
// carry it out.
func (s *store) retry(ctx context.Context, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.callTimeout, fmt.Errorf("no answer within %s", s.callTimeout))
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 400*time.Millisecond) {
		attempt, stop := context.WithTimeout(ctx, attemptTimeout)
		err := do(attempt)
		stop()
		switch {
		case err == nil:
			return nil
		case s.client.Ctx().Err() != nil:
			return errClosed
		case !isRetryable(err):
			return err
		}
		select {
		case <-ctx.Done():
			return timeoutError(context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// timeoutError returns the error of a call whose time ended. err is the error of the last
// attempt.
func timeoutError(cause, err error) error {
	if cause.Error() == err.Error() { // the last attempt ended with the call
		return cause
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// isRetryable returns whether another attempt may succeed. If it may, etcd has not said
// whether it carried out the failed one.
func isRetryable(err error) bool {
	var finalErr *finalError
	var etcdErr rpctypes.EtcdError
	switch {
	case errors.As(err, &finalErr):
		return false
	case errors.As(err, &etcdErr):
		return slices.ContainsFunc(retryableErrors, func(p error) bool { return errors.Is(err, p) })
	}
	return true
}

// finalError is an error that follows from an answer of etcd. Another attempt does not change
// it.
type finalError struct{ error }

func (c *finalError) Unwrap() error { return c.error }

// final makes err a finalError. It returns nil for nil.
func final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}
