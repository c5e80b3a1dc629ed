package manifest

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// These are for fenced's own documents. No API server has checked those before
// us, so a key that is not known, or that has no value, is an error and not
// overlooked.

// only reports every key that is not among names, and every one without a value.
func (o object) only(names ...string) {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		switch {
		case !slices.Contains(names, name):
			o.fail(o.at(name), "unknown key")
		case o.fields[name] == nil:
			o.fail(o.at(name), "has no value")
		}
	}
}

// need reports each of the names that is missing.
func (o object) need(names ...string) {
	for _, name := range names {
		if _, ok := o.fields[name]; !ok {
			o.fail(o.at(name), "is missing")
		}
	}
}

// choice reads a text that must be one of those; absent is the first.
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

// whole reads a whole number between two bounds; absent is 0.
func (o object) whole(name string, low, high int64) int {
	n, ok := get[int64](o, name, "a whole number")
	if ok && (n < low || n > high) {
		o.fail(o.at(name), "%d is not between %d and %d", n, low, high)
	}
	return int(n)
}

// span reads a duration that must be more than nothing; absent is 0.
func (o object) span(name string) time.Duration {
	d := o.duration(name)
	if s, ok := o.fields[name].(string); ok && d == 0 {
		if _, err := time.ParseDuration(s); err == nil {
			o.fail(o.at(name), "%q must be longer than nothing", s)
		}
	}
	return d
}

// onlyValues reports every key without a value.
func (o object) onlyValues() { o.only(slices.Collect(maps.Keys(o.fields))...) }
