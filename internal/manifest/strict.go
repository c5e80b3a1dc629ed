package manifest

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// These are for fenced's own documents. No API server has validated those before,
// so a key that is unknown or has no value is an error.

// allowKeys reports every key that is not among names, and every one without a
// value.
func (o object) allowKeys(names ...string) {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		switch {
		case !slices.Contains(names, name):
			o.fail(o.at(name), "unknown key")
		case o.fields[name] == nil:
			o.fail(o.at(name), "has no value")
		}
	}
}

// require reports each of the names that is missing.
func (o object) require(names ...string) {
	for _, name := range names {
		if _, ok := o.fields[name]; !ok {
			o.fail(o.at(name), "is missing")
		}
	}
}

// choice reads one of the given texts; the default is the first.
func (o object) choice(name string, choices ...string) string {
	if !o.has(name) {
		return choices[0]
	}
	s, ok := get[string](o, name, "a text")
	if ok && !slices.Contains(choices, s) {
		o.fail(o.at(name), "%q is none of %s", s, strings.Join(choices, ", "))
	}
	return s
}

// integer reads a whole number between two limits; absent is 0.
func (o object) integer(name string, low, high int64) int {
	n, ok := get[int64](o, name, "a whole number")
	if ok && (n < low || n > high) {
		o.fail(o.at(name), "%d is not between %d and %d", n, low, high)
	}
	return int(n)
}

// positiveDuration reads a duration greater than zero; absent is 0.
func (o object) positiveDuration(name string) time.Duration {
	d := o.duration(name)
	if s, ok := o.fields[name].(string); ok && d == 0 {
		if _, err := time.ParseDuration(s); err == nil {
			o.fail(o.at(name), "%q is not greater than 0", s)
		}
	}
	return d
}

// onlyValues reports every key without a value.
func (o object) onlyValues() { o.allowKeys(slices.Collect(maps.Keys(o.fields))...) }
