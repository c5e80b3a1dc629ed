package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// codecVersion is the version of every record that is written. Increase it for a change
// that an older fenced cannot read, or would lose when it saves the record again.
const codecVersion = 1

// envelope is the outer JSON object of every record: {"v":1,"data":...}.
type envelope struct {
	V    int             `json:"v"`
	Data json.RawMessage `json:"data"`
}

func encode(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{V: codecVersion, Data: data})
}

// decode reads a record. It refuses a field that this program does not know, because the
// field would be lost when the record is saved again. A record of a newer version is
// ErrFuture. // I20
func decode(data []byte, value any) error {
	var probe struct {
		V int `json:"v"`
	}
	// Only the version is read at first: the rest of a newer record is unknown.
	if err := json.Unmarshal(data, &probe); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	switch {
	case probe.V > codecVersion:
		return fmt.Errorf("decode version %d, this program knows %d: %w", probe.V, codecVersion, ErrFuture)
	case probe.V < 1:
		return errors.New("decode: the record has no version")
	}
	var e envelope
	if err := decodeStrict(data, &e); err != nil {
		return err
	}
	if len(e.Data) == 0 || string(e.Data) == "null" {
		return errors.New("decode: the record is empty")
	}
	return decodeStrict(e.Data, value)
}

// decodeStrict decodes one JSON value and refuses unknown fields.
func decodeStrict(data []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(value); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode: data follows the record")
	}
	return nil
}
