package bmc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// NeedsBody reports whether an answer is worth nothing without its body: that of a
// read. Of every other answer, the status and the headers say what happened.
func NeedsBody(resp *http.Response) bool {
	return resp.Request.Method == http.MethodGet && resp.StatusCode >= 200 && resp.StatusCode < 300
}

// ReadBody reads at most limit bytes of the body of an answer. One that is not needed
// may end early or lie about its length: iDRAC 8 sends 401 and cuts the connection. It
// may also never come, so the caller limits the time.
func ReadBody(resp *http.Response, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if NeedsBody(resp) {
		return b, err
	}
	return b, nil // a text for people
}

// maxNesting limits how deep an answer may be nested. Redfish resources are less
// than 10 deep.
const maxNesting = 64

// RepeatedError is the error of an answer that has one name twice in one object.
// JSON leaves open which of the two values counts, and encoding/json takes the last
// one: a PowerState On, then Off, would read Off. // I1
type RepeatedError struct {
	Name string // printable, at most 40 bytes
}

func (e *RepeatedError) Error() string { return fmt.Sprintf("the answer repeats %q", e.Name) }

// readNames are the names from which the drivers take a power state, an identity,
// an action or a system, as fold writes them (PowerState as powerstate). encoding/json fills a struct field
// from every name that differs only in case.
var readNames = map[string]bool{
	"powerstate": true, "power_status": true,
	"uuid": true, "serialnumber": true, "sku": true, "manufacturer": true, "@odata.type": true, "@odata.id": true, "@odata.etag": true,
	"actions": true, "#computersystem.reset": true, "target": true, "@redfish.actioninfo": true, "resettype@redfish.allowablevalues": true,
	"parameters": true, "name": true, "allowablevalues": true,
	"systems": true, "members": true, "members@odata.count": true, "members@odata.nextlink": true,
}

// CheckNames returns an error if an answer of a device is not exactly one JSON
// value, or is nested too deep. It is a *RepeatedError if an object of the answer,
// at any depth, has a name twice. Two names that differ only in case are
// the same name if a driver reads it. Others may: iLO 4 sends Links and links.
func CheckNames(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // 4e444 is a number, and no float64
	var open []*names
	for {
		token, err := d.Token()
		if err != nil {
			return noEarlyEnd(err)
		}
		top := len(open) - 1
		switch token {
		case json.Delim('{'), json.Delim('['):
			if len(open) == maxNesting {
				return fmt.Errorf("the answer is nested deeper than %d", maxNesting)
			}
			if top >= 0 {
				open[top].value()
			}
			open = append(open, newNames(token == json.Delim('{')))
		case json.Delim('}'), json.Delim(']'):
			open = open[:top]
		default:
			if top < 0 {
				break // a value that is no object: it has no names
			}
			if err := open[top].token(token); err != nil {
				return err
			}
		}
		if len(open) == 0 {
			return checkRest(b[d.InputOffset():])
		}
	}
}

// names are those of one object; an array has none.
type names struct {
	seen    map[string]bool // also folded, for those that a driver reads
	isValue bool            // the next token is a value
}

func newNames(object bool) *names {
	if object {
		return &names{seen: map[string]bool{}}
	}
	return &names{}
}

// value notes that a value began.
func (n *names) value() { n.isValue = false }

// token takes a name, or a value without parts.
func (n *names) token(token json.Token) error {
	if n.seen == nil || n.isValue {
		n.value()
		return nil
	}
	n.isValue = true
	name, _ := token.(string) // the decoder accepts nothing else in this place
	keys := []string{"=" + name}
	if folded := fold(name); readNames[folded] {
		keys = append(keys, folded)
	}
	for _, key := range keys {
		if n.seen[key] {
			return &RepeatedError{Name: Printable(name, maxShownName)}
		}
		n.seen[key] = true
	}
	return nil
}

const maxShownName = 40 // in bytes

// checkRest refuses a second value behind the first. Blanks and the NUL of a C
// string may follow.
func checkRest(rest []byte) error {
	if len(bytes.Trim(rest, " \t\r\n\x00")) > 0 {
		return errors.New("the answer continues after its end")
	}
	return nil
}

// noEarlyEnd is err of a decoder, or what it means that the answer ended.
func noEarlyEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fold maps all names to one that encoding/json takes for the same field. The
// long s and the Kelvin sign are an s and a k.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }
