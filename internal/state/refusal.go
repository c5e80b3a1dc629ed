package state

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Refusal is an account that a device has refused: it is left in peace for a while,
// because BMCs lock accounts that are tried again and again. The password is not kept.
type Refusal struct {
	Service string `json:"service"`
	Part    string `json:"part,omitempty"` // what of the service; empty: the login itself
	User    string `json:"user"`
	Kind    string `json:"kind"` // of the bmc.Error
	// Salt and Mark tell, most likely, another password from the one refused: one byte of
	// a salted hash is too little to guess by.
	Salt  string    `json:"salt"`
	Mark  string    `json:"mark"`
	Until time.Time `json:"until"`
}

// Refusals is what one instance knows of refused accounts.
type Refusals struct {
	Instance string    `json:"instance"`
	Version  uint64    `json:"-"`
	Accounts []Refusal `json:"accounts"`
}

func refusalsKey(instance string) string { return "refused accounts " + instance }

// SaveRefusals writes them durably and returns them with their new version.
func SaveRefusals(ctx context.Context, s Store, r Refusals) (Refusals, error) {
	data, err := encode(r)
	if err == nil {
		r.Version, err = s.Put(ctx, Record{Kind: KindMeta, Key: refusalsKey(r.Instance), Version: r.Version, Data: data})
	}
	if err != nil {
		return r, fmt.Errorf("save the refused accounts: %w", err)
	}
	return r, nil
}

// LoadRefusals reads those of an instance; none if it never saved any, nor of a record
// that cannot be read: one try more with a wrong password is less harm than a daemon
// that does not start, and leaves hosts off.
func LoadRefusals(ctx context.Context, s Store, instance string) (Refusals, error) {
	none := Refusals{Instance: instance}
	rec, err := s.Get(ctx, KindMeta, refusalsKey(instance))
	if errors.Is(err, ErrNotFound) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read the refused accounts: %w", err)
	}
	r := none
	if decode(rec.Data, &r) != nil {
		r = none
	}
	r.Version = rec.Version
	return r, nil
}
