package state

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// An export consists of JSON lines: a header, the records, and a trailer with the number of
// records and the SHA-256 of every byte before the trailer. It holds all records except the
// store's ID: two stores with the same ID would both act.
const (
	exportFormat  = "fenced-export"
	exportVersion = 1
)

type exportHeader struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Schema  int       `json:"schema"`
	Store   string    `json:"store"`
	At      time.Time `json:"at"`
}

type exportRecord struct {
	Kind Kind   `json:"kind"`
	Key  string `json:"key"`
	Data []byte `json:"data"`
}

type exportTrailer struct {
	Records int    `json:"records"`
	SHA256  string `json:"sha256"`
}

// Export writes all records and returns their number. The store may be in use: runs are
// written before backups, so the export has the backups of each run in it. // I21
func Export(ctx context.Context, s Store, w io.Writer) (int, error) {
	id, err := ID(ctx, s)
	if err != nil {
		return 0, fmt.Errorf("export the state: %w", err)
	}
	sum, buffered := sha256.New(), bufio.NewWriter(w)
	lines := json.NewEncoder(io.MultiWriter(buffered, sum))
	n := 0
	err = lines.Encode(exportHeader{Format: exportFormat, Version: exportVersion, Schema: Schema, Store: id, At: time.Now().UTC()})
	for _, kind := range kinds {
		if err != nil {
			break
		}
		n, err = exportKind(ctx, s, kind, lines, n)
	}
	if err == nil {
		err = json.NewEncoder(buffered).Encode(exportTrailer{Records: n, SHA256: hex.EncodeToString(sum.Sum(nil))})
	}
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return 0, fmt.Errorf("export the state: %w", err)
	}
	return n, nil
}

// exportKind writes the records of one kind. n is the number of records before and after.
func exportKind(ctx context.Context, s Store, kind Kind, lines *json.Encoder, n int) (int, error) {
	records, err := s.List(ctx, kind)
	if err != nil {
		return n, err
	}
	for _, r := range records {
		if kind == KindMeta && (r.Key == idKey || r.Key == importKey) {
			continue
		}
		if !utf8.ValidString(r.Key) {
			return n, fmt.Errorf("the key of %s is not valid UTF-8", RecordName(kind, r.Key))
		}
		if err := lines.Encode(exportRecord{Kind: kind, Key: r.Key, Data: r.Data}); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
