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

const (
	// maxExport is the largest export that is accepted, in bytes.
	maxExport = 4 << 30
	// maxLine is the longest line, in bytes: the largest record in base64 fits.
	maxLine = 2*MaxData + 64<<10
)

// importKey is the key of the mark that a store has from the first record of an import to
// the last.
const importKey = "importing"

// ErrIncompleteImport means that an import into the store began and was not completed.
var ErrIncompleteImport = errors.New("an import into this store was not completed; import again")

// CheckComplete returns ErrIncompleteImport for a store that holds only a part of an
// export. Without the missing runs, fenced would forget hosts that it powered off. // I20
func CheckComplete(ctx context.Context, s Store) error {
	_, err := s.Get(ctx, KindMeta, importKey)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return ErrIncompleteImport
}

// Import reads an export into an empty store and returns the number of records. It checks
// the complete export before it writes anything. If an earlier import was interrupted,
// Import first removes the records of that one.
//
// Import returns ErrLocked if an instance uses the store, and ErrFuture if a newer fenced
// wrote the export. After an error during the writing, CheckComplete refuses the store.
func Import(ctx context.Context, s Store, r io.Reader) (int, error) {
	n, err := importAll(ctx, s, r)
	if err != nil {
		return 0, fmt.Errorf("import the state: %w", err)
	}
	return n, nil
}

func importAll(ctx context.Context, s Store, r io.Reader) (n int, err error) {
	// Both passes read this copy: r can be read only once, and a file could change.
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
		return 0, fmt.Errorf("the export is larger than %d bytes", int64(maxExport))
	}
	found := map[string]bool{}
	err = readExport(spool, func(r exportRecord) error {
		id := string(r.Kind) + "/" + r.Key
		if found[id] {
			return fmt.Errorf("%s occurs twice", RecordName(r.Kind, r.Key))
		}
		found[id] = true
		return r.check()
	})
	if err != nil {
		return 0, err
	}
	if err := requireEmpty(ctx, s); err != nil {
		return 0, err
	}
	mark, err := s.Put(ctx, Record{Kind: KindMeta, Key: importKey})
	if err != nil {
		return 0, err
	}
	err = readExport(spool, func(r exportRecord) error {
		data, err := r.imported()
		if err == nil {
			_, err = s.Put(ctx, Record{Kind: r.Kind, Key: r.Key, Data: data})
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(found), s.Delete(ctx, KindMeta, importKey, mark)
}

// imported is what is stored of a record. What fenced may have acted on since the export is not known, so no scope is on record, and each cluster
// begins with a quiet period. // I16, I18
func (r exportRecord) imported() ([]byte, error) {
	if r.Kind != KindCluster {
		return r.Data, nil
	}
	c, err := Clusters.Decode(Record{Kind: r.Kind, Key: r.Key, Data: r.Data})
	if err != nil { // it is imported as it is
		return r.Data, nil
	}
	c.Scope = Scope{}
	return encode(c)
}

// check refuses a record that this program cannot store.
func (r exportRecord) check() error {
	if err := CheckKind(r.Kind); err != nil {
		return fmt.Errorf("%s: %w", RecordName(r.Kind, r.Key), err)
	}
	if r.Kind == KindMeta && (r.Key == idKey || r.Key == importKey) {
		return fmt.Errorf("%s must not be imported into another store", RecordName(r.Kind, r.Key))
	}
	if len(r.Data) > MaxData {
		return fmt.Errorf("%s has %d bytes, %d are allowed", RecordName(r.Kind, r.Key), len(r.Data), MaxData)
	}
	var probe struct {
		V int `json:"v"`
	}
	// A record without an envelope is imported unchanged: it was unreadable before.
	if json.Unmarshal(r.Data, &probe) == nil && probe.V > codecVersion {
		return fmt.Errorf("%s: %w", RecordName(r.Kind, r.Key), ErrFuture)
	}
	return CheckKey(r.Kind, r.Key)
}

// readExport calls each for every record, and then checks the trailer.
func readExport(f io.ReadSeeker, each func(exportRecord) error) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	sum, n := sha256.New(), 0
	var trailer []byte
	for line := 0; lines.Scan(); line++ {
		text := lines.Bytes()
		switch {
		case trailer != nil:
			return fmt.Errorf("line %d: data follows the last line", line+1)
		case line == 0:
			if err := checkHeader(text); err != nil {
				return err
			}
		case bytes.HasPrefix(text, []byte(`{"records":`)):
			trailer = bytes.Clone(text)
			continue
		default:
			var r exportRecord
			if err := decodeStrict(text, &r); err != nil {
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
	if trailer == nil {
		return errors.New("the last line is missing: the file was cut short")
	}
	var end exportTrailer
	if err := decodeStrict(trailer, &end); err != nil {
		return fmt.Errorf("last line: %w", err)
	}
	if end.Records != n || end.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
		return errors.New("the content does not match the checksum in the last line: the file was changed")
	}
	return nil
}

// checkHeader refuses the first line of another program's file, or of a newer fenced.
func checkHeader(text []byte) error {
	var h exportHeader
	// Unknown fields are accepted here: of a newer format only name and version are known.
	if err := json.Unmarshal(text, &h); err != nil || h.Format != exportFormat || h.Version < 1 {
		return errors.New("the file is not an export of fenced")
	}
	if h.Version > exportVersion || h.Schema > Schema {
		return fmt.Errorf("format %d with schema %d, this program knows %d with %d: %w", h.Version, h.Schema, exportVersion, Schema, ErrFuture)
	}
	return nil
}

// requireEmpty refuses a store that has records, or that an instance uses.
func requireEmpty(ctx context.Context, s Store) error {
	if shared, ok := s.(Shared); ok {
		users, err := shared.Instances(ctx)
		if err != nil {
			return err
		}
		for _, name := range users {
			return fmt.Errorf("instance %q uses the store: %w", name, ErrLocked)
		}
	}
	if err := CheckComplete(ctx, s); errors.Is(err, ErrIncompleteImport) {
		return removeImported(ctx, s)
	}
	var found []string
	for _, kind := range kinds {
		records, err := s.List(ctx, kind)
		if err != nil {
			return err
		}
		records = slices.DeleteFunc(records, func(r Record) bool { return kind == KindMeta && r.Key == idKey })
		if len(records) > 0 {
			found = append(found, fmt.Sprintf("%d %s", len(records), kind))
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("the store is not empty: it has records (%s)", strings.Join(found, ", "))
	}
	return nil
}

// removeImported removes the records of an interrupted import, and its mark last.
func removeImported(ctx context.Context, s Store) error {
	for _, kind := range kinds { // the mark is a record of the last kind
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
