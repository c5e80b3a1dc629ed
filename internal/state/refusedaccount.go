package state

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// RefusedAccount is an account that a device has refused. fenced does not try the account
// again before Until, because BMCs lock an account after repeated attempts. The password is
// not stored.
type RefusedAccount struct {
	Service string `json:"service"`
	Part    string `json:"part,omitempty"` // the part of the service that refused; empty: the login itself
	User    string `json:"user"`
	Kind    string `json:"kind"` // the kind of the bmc.Error
	// Salt and Mark show, with high probability, whether a password is the one that was
	// refused. Mark is one byte of a salted hash: too little to guess the password.
	Salt  string    `json:"salt"`
	Mark  string    `json:"mark"`
	Until time.Time `json:"until"`
}

// RefusedAccounts are the refused accounts that one instance knows.
type RefusedAccounts struct {
	Instance string           `json:"instance"`
	Version  uint64           `json:"-"`
	Accounts []RefusedAccount `json:"accounts"`
}

func refusedAccountsKey(instance string) string { return "refused accounts " + instance }

// SaveRefusedAccounts writes the accounts durably and returns them with their new version.
// For the errors see Store.Put.
func SaveRefusedAccounts(ctx context.Context, s Store, r RefusedAccounts) (RefusedAccounts, error) {
	data, err := encode(r)
	if err == nil {
		r.Version, err = s.Put(ctx, Record{Kind: KindMeta, Key: refusedAccountsKey(r.Instance), Version: r.Version, Data: data})
	}
	if err != nil {
		return r, fmt.Errorf("save the refused accounts: %w", err)
	}
	return r, nil
}

// LoadRefusedAccounts returns the accounts that an instance saved. It returns none if there
// is no record, or if the record cannot be read: one more attempt with a wrong password does
// less harm than a daemon that does not start and leaves hosts off. An error means that the
// store did not answer.
func LoadRefusedAccounts(ctx context.Context, s Store, instance string) (RefusedAccounts, error) {
	none := RefusedAccounts{Instance: instance}
	rec, err := s.Get(ctx, KindMeta, refusedAccountsKey(instance))
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
