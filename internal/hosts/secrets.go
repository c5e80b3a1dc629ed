package hosts

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

const (
	credentialsAge = 10 * time.Minute // how old the credentials of a health check may be
	failureAge     = 2 * time.Minute  // how old the failure to read them may be
)

// secretCache keeps the credentials of one cluster's Secrets for health checks, which check
// thousands of hosts every minute. Runs read the Secrets without it.
type secretCache struct {
	source Secrets

	mu    sync.Mutex
	byKey map[string]cachedCredentials // by namespace/name
}

type cachedCredentials struct {
	user     string
	password bmc.Secret
	err      error
	until    time.Time
}

func newSecretCache(source Secrets) *secretCache {
	return &secretCache{source: source, byKey: map[string]cachedCredentials{}}
}

// read reads a Secret from the cluster, and caches what it held.
func (s *secretCache) read(ctx context.Context, key string) (string, bmc.Secret, error) {
	ns, name, _ := strings.Cut(key, "/")
	user, password, err := s.source.Credentials(ctx, ns, name)
	if ctx.Err() != nil {
		return user, password, err
	}
	age := credentialsAge
	if err != nil {
		age = failureAge
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byKey[key] = cachedCredentials{user, password, err, time.Now().Add(age - spread(key, age/4))}
	return user, password, err
}

// recent returns what is cached, or reads the Secret if that is too old.
func (s *secretCache) recent(ctx context.Context, key string) (string, bmc.Secret, error) {
	s.mu.Lock()
	c, ok := s.byKey[key]
	s.mu.Unlock()
	if ok && time.Now().Before(c.until) {
		return c.user, c.password, c.err
	}
	return s.read(ctx, key)
}

// forget makes the next health check read a device's Secret again.
func (s *secretCache) forget(d bmc.Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byKey, d.Secret)
}

// spread is a part of most that differs from key to key, so that not all Secrets are read at the
// same time.
func spread(key string, most time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // a hash never fails
	return most * time.Duration(h.Sum32()%1024) / 1024
}

type readSecret func(ctx context.Context, key string) (string, bmc.Secret, error)

// withSecrets fills in users and passwords from the Secrets that the devices name. A device whose
// Secret cannot be read is Unusable; the others can be used without it.
func withSecrets(ctx context.Context, h bmc.Host, read readSecret) bmc.Host {
	levels := make([]bmc.Level, len(h.Levels))
	for i, l := range h.Levels {
		levels[i].Devices = slices.Clone(l.Devices)
		for j := range levels[i].Devices {
			if d := &levels[i].Devices[j]; d.Secret != "" && d.Password.Empty() {
				withSecret(ctx, h.Source, d, read)
			}
		}
	}
	h.Levels = levels
	return h
}

// withSecret fills in one device's user and password.
func withSecret(ctx context.Context, source string, d *bmc.Device, read readSecret) {
	if ns, name, _ := strings.Cut(d.Secret, "/"); ns == "" || name == "" {
		d.Unusable = &reason.Refusal{Reason: reason.SecretMissing, Message: source + " names no Secret with its BMC's credentials"}
		return
	}
	user, password, err := read(ctx, d.Secret)
	if err != nil {
		d.Unusable = &reason.Refusal{Reason: hostErrorReason(err, reason.SecretMissing), Message: source + ": " + reason.Sentence(err)}
		return
	}
	d.Username, d.Password = user, password
}
