package state

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

const idKey = "store-id"

// ID returns the ID of a store: a random text that the first call creates. By their IDs, two
// daemons see whether they use the same store. For the errors see Store.Put.
func ID(ctx context.Context, s Store) (string, error) {
	r, err := s.Get(ctx, KindMeta, idKey)
	if errors.Is(err, ErrNotFound) {
		_, err = s.Put(ctx, Record{Kind: KindMeta, Key: idKey, Data: []byte(rand.Text())})
		// Another process may have been faster. Then its ID is valid.
		if err == nil || errors.Is(err, ErrExists) {
			r, err = s.Get(ctx, KindMeta, idKey)
		}
	}
	if err != nil {
		return "", fmt.Errorf("read the store's id: %w", err)
	}
	return string(r.Data), nil
}
