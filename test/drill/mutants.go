package main

import (
	"context"
	"io"
)

func noticeMutants(ctx context.Context, dir string, first uint64, side int, w io.Writer) error {
	return nil
}
