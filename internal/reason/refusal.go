package reason

import (
	"errors"
	"fmt"
	"strings"
)

// Refusal is the error of whoever does not do something because a gate forbids it: a
// stable code, and a sentence for people.
type Refusal struct {
	Reason  Code
	Message string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Reason, r.Message) }

// AsRefusal finds the Refusal that an error is, or wraps.
func AsRefusal(err error) (*Refusal, bool) { return errors.AsType[*Refusal](err) }

// Sentence is the text of an error whose code is shown beside it: the text of a Refusal
// in it is told without the code.
func Sentence(err error) string {
	if r, ok := AsRefusal(err); ok {
		return strings.Replace(err.Error(), r.Error(), r.Message, 1)
	}
	return err.Error()
}

// RefusalOf is a gate that does not hold as an error.
func RefusalOf(g Gate) *Refusal {
	return &Refusal{Reason: g.Reason, Message: g.Why()}
}
