package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// codecVersion is the version every record is written in. A change that an
// older fenced could not read, or would lose on rewriting, needs a new one.
const codecVersion = 1

// envelope is the outer form of every record: {"v":1,"data":...}.
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

// decode reads a record strictly: a field that this version does not know
// would be lost when the record is saved again, so it is refused. // I20
func decode(data []byte, value any) error {
	var probe struct {
		V int `json:"v"`
	}
	// The version comes first and alone: of a future one nothing else is known.
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
	if err := strict(data, &e); err != nil {
		return err
	}
	if len(e.Data) == 0 || string(e.Data) == "null" {
		return errors.New("decode: the record is empty")
	}
	return strict(e.Data, value)
}

func strict(data []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(value); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode: more follows the record")
	}
	return nil
}
