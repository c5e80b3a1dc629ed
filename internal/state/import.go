package state

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const (
	// maxExport bounds what an import keeps in a temporary file.
	maxExport = 4 << 30
	// maxLine holds the largest record in base64.
	maxLine = 2*MaxData + 64<<10
)

// importKey stands in a store from the first record of an import to the last.
const importKey = "importing"

// ErrUnfinished is the answer of Whole while an import was not completed.
var ErrUnfinished = errors.New("an import into this store was not completed; import again")

// Whole refuses a store that holds only a part of what was to be imported: a run that is
// missing is a host that stays off and is forgotten. // I20
func Whole(ctx context.Context, s Store) error {
	_, err := s.Get(ctx, KindMeta, importKey)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return ErrUnfinished
}

// Import reads an export into an empty store and says how many records it held. All
// of it is checked before anything is written. What an earlier import left that was
// interrupted is removed first.
func Import(ctx context.Context, s Store, r io.Reader) (int, error) {
	n, err := importAll(ctx, s, r)
	if err != nil {
		return 0, fmt.Errorf("import the state: %w", err)
	}
	return n, nil
}

func importAll(ctx context.Context, s Store, r io.Reader) (n int, err error) {
	// The copy is what is checked and what is read: a file may change in between.
	spool, err := os.CreateTemp("", "fenced-import-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, spool.Close(), os.Remove(spool.Name())) }()
	size, err := io.Copy(spool, io.LimitReader(r, maxExport+1))
	if err != nil {
		return 0, err
	}
	if size > maxExport {
		return 0, fmt.Errorf("it is larger than %d bytes", int64(maxExport))
	}
	found := map[string]bool{}
	err = readExport(spool, func(r exportRecord) error {
		id := string(r.Kind) + "/" + r.Key
		if found[id] {
			return fmt.Errorf("%s is there twice", RecordName(r.Kind, r.Key))
		}
		found[id] = true
		return r.check()
	})
	if err != nil {
		return 0, err
	}
	if err := empty(ctx, s); err != nil {
		return 0, err
	}
	mark, err := s.Put(ctx, Record{Kind: KindMeta, Key: importKey})
	if err != nil {
		return 0, err
	}
	err = readExport(spool, func(r exportRecord) error {
		_, err := s.Put(ctx, Record{Kind: r.Kind, Key: r.Key, Data: r.Data})
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(found), s.Delete(ctx, KindMeta, importKey, mark)
}

// check refuses a record that this version could not keep.
func (r exportRecord) check() error {
	if err := CheckKind(r.Kind); err != nil {
		return fmt.Errorf("%s: %w", RecordName(r.Kind, r.Key), err)
	}
	if r.Kind == KindMeta && (r.Key == idKey || r.Key == importKey) {
		return fmt.Errorf("%s is not for another store", RecordName(r.Kind, r.Key))
	}
	if len(r.Data) > MaxData {
		return fmt.Errorf("%s has %d bytes, %d are allowed", RecordName(r.Kind, r.Key), len(r.Data), MaxData)
	}
	var probe struct {
		V int `json:"v"`
	}
	// A record that is not even an envelope goes along as it is: it was unreadable before.
	if json.Unmarshal(r.Data, &probe) == nil && probe.V > codecVersion {
		return fmt.Errorf("%s: %w", RecordName(r.Kind, r.Key), ErrFuture)
	}
	return CheckKey(r.Kind, r.Key)
}

// readExport gives each record, and then checks the seal.
func readExport(f io.ReadSeeker, each func(exportRecord) error) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	sum, n := sha256.New(), 0
	var seal []byte
	for line := 0; lines.Scan(); line++ {
		text := lines.Bytes()
		switch {
		case seal != nil:
			return fmt.Errorf("line %d: more follows the last line", line+1)
		case line == 0:
			if err := checkHeader(text); err != nil {
				return err
			}
		case bytes.HasPrefix(text, []byte(`{"records":`)):
			seal = bytes.Clone(text)
			continue
		default:
			var r exportRecord
			if err := strict(text, &r); err != nil {
				return fmt.Errorf("line %d: %w", line+1, err)
			}
			if err := each(r); err != nil {
				return fmt.Errorf("line %d: %w", line+1, err)
			}
			n++
		}
		sum.Write(text)
		sum.Write([]byte{'\n'})
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if seal == nil {
		return errors.New("its last line is missing: it was cut short")
	}
	var end exportSeal
	if err := strict(seal, &end); err != nil {
		return fmt.Errorf("last line: %w", err)
	}
	if end.Records != n || end.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
		return errors.New("its content does not match the checksum in the last line: it was changed")
	}
	return nil
}

func checkHeader(text []byte) error {
	var h exportHeader
	// Of a future format nothing but its name and version is known.
	if err := json.Unmarshal(text, &h); err != nil || h.Format != exportFormat || h.Version < 1 {
		return errors.New("it is not an export of fenced")
	}
	if h.Version > exportVersion || h.Schema > Schema {
		return fmt.Errorf("format %d with schema %d, this program knows %d with %d: %w", h.Version, h.Schema, exportVersion, Schema, ErrFuture)
	}
	return nil
}

// empty refuses a store that holds anything, or that a fenced takes part in.
func empty(ctx context.Context, s Store) error {
	if shared, ok := s.(Shared); ok {
		users, err := shared.Instances(ctx)
		if err != nil {
			return err
		}
		for _, name := range users {
			return fmt.Errorf("instance %q uses the store: %w", name, ErrLocked)
		}
	}
	if err := Whole(ctx, s); errors.Is(err, ErrUnfinished) {
		return clearAll(ctx, s)
	}
	var there []string
	for _, kind := range kinds {
		records, err := s.List(ctx, kind)
		if err != nil {
			return err
		}
		records = slices.DeleteFunc(records, func(r Record) bool { return kind == KindMeta && r.Key == idKey })
		if len(records) > 0 {
			there = append(there, fmt.Sprintf("%d %s", len(records), kind))
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("the store is not empty: it has records (%s)", strings.Join(there, ", "))
	}
	return nil
}

// clearAll removes what an interrupted import wrote, and its mark last.
func clearAll(ctx context.Context, s Store) error {
	for _, kind := range kinds { // the mark is of the last kind
		records, err := s.List(ctx, kind)
		if err != nil {
			return err
		}
		for _, r := range records {
			if kind == KindMeta && r.Key == idKey {
				continue
			}
			if err := s.Delete(ctx, kind, r.Key, r.Version); err != nil {
				return err
			}
		}
	}
	return nil
}
