package state

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

const idKey = "store-id"

// ID returns the name of a store, drawn once and at random when it was made.
// Two daemons with two stores can tell by it that they are not one.
func ID(ctx context.Context, s Store) (string, error) {
	r, err := s.Get(ctx, KindMeta, idKey)
	if errors.Is(err, ErrNotFound) {
		_, err = s.Put(ctx, Record{Kind: KindMeta, Key: idKey, Data: []byte(rand.Text())})
		// Another process may have drawn first; its name counts.
		if err == nil || errors.Is(err, ErrExists) {
			r, err = s.Get(ctx, KindMeta, idKey)
		}
	}
	if err != nil {
		return "", fmt.Errorf("read the store's id: %w", err)
	}
	return string(r.Data), nil
}
