package config

import (
	"fmt"
	"strings"
)

// Principal is a local user or group that a role is given to.
type Principal struct {
	Group bool
	Name  string // a name, or a number in digits
}

var principalName = lazily(`^([A-Za-z_][A-Za-z0-9_.@\\-]{0,254}\$?|[0-9]{1,10})$`)

// ParsePrincipal reads user:NAME or group:NAME. Whether the system knows the
// name is asked when a request comes, so that people may be added later.
func ParsePrincipal(text string) (Principal, error) {
	kind, name, ok := strings.Cut(text, ":")
	if !ok || (kind != "user" && kind != "group") || !principalName().MatchString(name) {
		return Principal{}, fmt.Errorf("%q is not user:NAME or group:NAME", text)
	}
	return Principal{Group: kind == "group", Name: name}, nil
}
