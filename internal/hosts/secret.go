package hosts

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

const (
	secretAge   = 10 * time.Minute // a health check may use credentials as old as this
	noSecretAge = 2 * time.Minute  // or the news that there are none
)

// remembered is what a Secret held, for health checks: thousands of hosts are
// checked every minute, and the API server has other work. Runs read it afresh.
type remembered struct {
	user     string
	password bmc.Secret
	err      error
	until    time.Time
}

// credentials reads a Secret past what is remembered.
func (c *Cluster) credentials(ctx context.Context, key string) (string, bmc.Secret, error) {
	ns, name, _ := strings.Cut(key, "/")
	user, password, err := c.opt.Secrets.Credentials(ctx, ns, name)
	if ctx.Err() != nil {
		return user, password, err
	}
	age := secretAge
	if err != nil {
		age = noSecretAge
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets[key] = remembered{user, password, err, time.Now().Add(age - spread(key, age/4))}
	return user, password, err
}

// rememberedCredentials reads a Secret unless it was read a short while ago.
func (c *Cluster) rememberedCredentials(ctx context.Context, key string) (string, bmc.Secret, error) {
	c.mu.Lock()
	r, ok := c.secrets[key]
	c.mu.Unlock()
	if ok && time.Now().Before(r.until) {
		return r.user, r.password, r.err
	}
	return c.credentials(ctx, key)
}

// spread is a share of most that differs from key to key, so that not all are
// due at once.
func spread(key string, most time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // a hash never fails
	return most * time.Duration(h.Sum32()%1024) / 1024
}

// forgetSecret makes the next health check read a device's Secret again.
func (c *Cluster) forgetSecret(d bmc.Device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.secrets, d.Secret)
}

type readSecret func(ctx context.Context, key string) (string, bmc.Secret, error)

// withSecrets fills in users and passwords from the Secrets that devices name. A
// device whose Secret cannot be read is Unusable; the others serve without it.
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
