package reason

import (
	"errors"
	"fmt"
	"strings"
)

// Refusal is the error of an action that a gate forbids: a stable code, and a
// sentence for people.
type Refusal struct {
	Reason  Code
	Message string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Reason, r.Message) }

// Join writes codes for people.
func Join(codes []Code) string {
	all := make([]string, len(codes))
	for i, c := range codes {
		all[i] = string(c)
	}
	return strings.Join(all, ", ")
}

// AsRefusal returns the Refusal that err is or wraps.
func AsRefusal(err error) (*Refusal, bool) { return errors.AsType[*Refusal](err) }

// Sentence is the text of an error for a display that shows the code separately.
// The code of a Refusal in it is left out.
func Sentence(err error) string {
	if r, ok := AsRefusal(err); ok {
		return strings.Replace(err.Error(), r.Error(), r.Message, 1)
	}
	return err.Error()
}

// RefusalOf turns a closed gate into an error.
func RefusalOf(g Gate) *Refusal {
	return &Refusal{Reason: g.Reason, Message: g.Why()}
}
