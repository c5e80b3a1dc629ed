package redfish

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/stmcginnis/gofish/common"

	"github.com/fenced/fenced/internal/bmc"
)

// maxText limits what is shown of a text from a BMC, in bytes.
const maxText = 300

func failf(kind bmc.Kind, format string, args ...any) error {
	return bmc.WithKind(kind, fmt.Errorf(format, args...))
}

// displayError is an error with the text that may be shown.
type displayError struct {
	text  string
	cause error
}

func (e *displayError) Error() string { return e.text }
func (e *displayError) Unwrap() error { return e.cause }

// fail returns the *bmc.Error of an operation.
func (c *Client) fail(op string, sent bmc.Sent, err error) error {
	text := err.Error()
	cause := err
	if e := answerOf(err); e != nil {
		// gofish's error contains the answer itself, which may repeat what we sent.
		text = strings.ReplaceAll(text, e.Error(), answerText(e))
		cause = nil
	} else if e, ok := errors.AsType[*url.Error](err); ok {
		text = strings.ReplaceAll(text, e.Error(), e.Err.Error()) // bmc.Error.Addr has the URL
	}
	text = c.scrub(text)
	if hint := hintOf(err); hint != "" { // behind the BMC's own words, which may be long
		text += "; " + hint
	}
	return &bmc.Error{
		Kind: kindOf(err), Op: op, Addr: c.device.Endpoint.String(), Sent: sent,
		Err: &displayError{text: text, cause: cause},
	}
}

// hintError is an error with what to do about it.
type hintError struct {
	hint string
	err  error
}

func (e *hintError) Error() string { return e.err.Error() }
func (e *hintError) Unwrap() error { return e.err }

// hintOf returns what to do about err, "" if nothing is known.
func hintOf(err error) string {
	if e, ok := errors.AsType[*hintError](err); ok {
		return e.hint
	}
	if hasMessage(err, "PasswordChangeRequired") {
		return "the BMC lets this account do nothing before its password is changed: log in to the BMC, change it, and write the new one into the inventory"
	}
	return ""
}

// kindOf classifies err. An unknown error counts as KindProtocol.
func kindOf(err error) bmc.Kind {
	if e, ok := errors.AsType[*bmc.KindError](err); ok {
		return e.Kind
	}
	if status := statusOf(err); status != 0 {
		return bmc.KindOfStatus(status)
	}
	return cmp.Or(bmc.KindOfTransport(err), bmc.KindProtocol)
}

// answerOf returns the HTTP error in the BMC's answer; nil if there is none.
func answerOf(err error) *common.Error {
	if e, ok := errors.AsType[*common.Error](err); ok && e.HTTPReturnedStatusCode != 0 {
		return e
	}
	return nil
}

// statusOf returns the HTTP status of an error answer, 0 if there was none.
func statusOf(err error) int {
	if e := answerOf(err); e != nil {
		return e.HTTPReturnedStatusCode
	}
	return 0
}

func answerText(e *common.Error) string {
	message := e.Message
	if len(e.ExtendedInfos) > 0 && e.ExtendedInfos[0].Message != "" {
		message = e.ExtendedInfos[0].Message
	}
	text := fmt.Sprintf("HTTP %d %s", e.HTTPReturnedStatusCode, http.StatusText(e.HTTPReturnedStatusCode))
	if message == "" {
		return text
	}
	return text + ": " + message
}

// scrub makes text safe to show: without credentials, even if a BMC repeats them,
// without control characters, and short. // I25
func (c *Client) scrub(text string) string {
	password := c.device.Password.Reveal()
	basic := base64.StdEncoding.EncodeToString([]byte(c.device.Username + ":" + password))
	return bmc.Scrubbed(text, maxText, basic, password, jsonText(password), c.token.Reveal())
}

// jsonText is s as it is encoded in the body of a login.
func jsonText(s string) string {
	b, _ := json.Marshal(s) // a string always marshals
	return string(b[1 : len(b)-1])
}
