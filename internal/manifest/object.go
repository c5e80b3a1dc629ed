package manifest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/typo"
)

// object reads the fields of one JSON object. A field that is absent or null
// gives a zero value. A field of the wrong type is an error, collected in errs
// with its path. The zero object has no fields.
type object struct {
	fields map[string]any
	path   string
	errs   *[]error
	left   *int // how many bytes of text may still be kept of the document
}

// read returns the top-level object of a document.
func read(fields map[string]any) object {
	left := maxKept
	return object{fields: fields, errs: &[]error{}, left: &left}
}

// Limits for what others write: the entries of a list that is evaluated for each target, a text, all
// labels of an object, all of its texts, and error messages. An API server takes objects of more than a megabyte, and
// what is read here is kept, compared and shown.
const (
	maxEntries = 256
	maxValue   = 4096    // bytes of a text
	maxLabels  = 1 << 16 // bytes of all keys and values
	maxKept    = 1 << 17 // bytes of all texts of an object
	maxErrors  = 20
	maxText    = 500 // bytes per error
)

// err joins the errors so far, in the order of reading.
func (o object) err() error { return errors.Join(o.firstErrors()...) }

// firstErrors returns the first errors, and how many more there are.
func (o object) firstErrors() []error {
	all := *o.errs
	if len(all) <= maxErrors {
		return all
	}
	return append(slices.Clone(all[:maxErrors]), fmt.Errorf("and %d more errors", len(all)-maxErrors))
}

func (o object) at(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// fail records an error about the field at path.
func (o object) fail(path, format string, args ...any) {
	text := path + ": " + fmt.Sprintf(format, args...)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	*o.errs = append(*o.errs, errors.New(text))
}

func (o object) has(name string) bool { return o.fields[name] != nil }

// mustHave reports each of the names that is missing or null.
func (o object) mustHave(names ...string) {
	for _, name := range names {
		if !o.has(name) {
			o.fail(o.at(name), "is missing")
		}
	}
}

// get reads a field as a T; want describes a T in messages.
func get[T any](o object, name, want string) (value T, ok bool) {
	raw := o.fields[name]
	if raw == nil {
		return value, false
	}
	value, ok = raw.(T)
	if !ok {
		o.fail(o.at(name), "%s is not %s", describeValue(raw), want)
	}
	return value, ok
}

// text reads a text; one that is too long is an error.
func (o object) text(name string) string {
	s, _ := get[string](o, name, "a text")
	if len(s) > maxValue {
		o.fail(o.at(name), "is %d bytes long, more than %d", len(s), maxValue)
		return ""
	}
	return o.keep(o.at(name), s)
}

// keep returns a text that is kept; the one with which the document has too many is an error.
func (o object) keep(path, text string) string {
	before := *o.left
	if *o.left -= len(text); *o.left >= 0 {
		return text
	}
	if before >= 0 {
		o.fail(path, "and the texts before it are too long: together they have more than %d bytes", maxKept)
	}
	return ""
}

// first reads the first entries of a list that may be of any length.
func (o object) first(name string) []object {
	list := o.children(name)
	return list[:min(len(list), maxEntries)]
}

// start reads the start of a text that may be of any length.
func (o object) start(name string, most int) string {
	s, _ := get[string](o, name, "a text")
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

func (o object) flag(name string) bool {
	b, _ := get[bool](o, name, "true or false")
	return b
}

// whole reads a whole number; an absent one is otherwise. It saturates at what an int32 holds.
func (o object) whole(name string, otherwise int) int {
	n, ok := get[int64](o, name, "a whole number")
	if !ok {
		return otherwise
	}
	return int(max(math.MinInt32, min(math.MaxInt32, n)))
}

// time reads an RFC 3339 time; null is the zero time, as in the API.
func (o object) time(name string) time.Time {
	s, ok := get[string](o, name, "a time")
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		o.fail(o.at(name), "%q is not a time", s)
	}
	return policy.Bounded(t)
}

// duration reads a Go duration. A negative one is an error, because it would mean
// "at once".
func (o object) duration(name string) time.Duration {
	d := o.signedDuration(name)
	if d < 0 {
		o.fail(o.at(name), "%s is negative", describeValue(o.fields[name]))
	}
	return d
}

// signedDuration reads a duration that may be negative.
func (o object) signedDuration(name string) time.Duration {
	s, ok := get[string](o, name, "a duration")
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		o.fail(o.at(name), "%q is not a duration", s)
	}
	return d
}

// child reads an object; an absent one has no fields.
func (o object) child(name string) object {
	m, _ := get[map[string]any](o, name, "an object")
	return object{fields: m, path: o.at(name), errs: o.errs, left: o.left}
}

// shortList is children for a list that is kept or evaluated for each target: a long one
// is an error.
func (o object) shortList(name string) []object {
	if o.isLong(name) {
		return nil
	}
	return o.children(name)
}

func (o object) isLong(name string) bool {
	list, ok := o.fields[name].([]any)
	if ok = ok && len(list) > maxEntries; ok {
		o.fail(o.at(name), "has %d entries, more than %d", len(list), maxEntries)
	}
	return ok
}

// children reads a list of objects.
func (o object) children(name string) []object {
	raw, _ := get[[]any](o, name, "a list")
	list := make([]object, 0, len(raw))
	for i, item := range raw {
		path := fmt.Sprintf("%s[%d]", o.at(name), i)
		m, ok := item.(map[string]any)
		if !ok {
			o.fail(path, "%s is not an object", describeValue(item))
			continue
		}
		list = append(list, object{fields: m, path: path, errs: o.errs, left: o.left})
	}
	return list
}

// texts reads a list of strings; a long one is an error.
func (o object) texts(name string) []string {
	if o.isLong(name) {
		return nil
	}
	raw, _ := get[[]any](o, name, "a list")
	list := make([]string, 0, len(raw))
	for i, item := range raw {
		path := fmt.Sprintf("%s[%d]", o.at(name), i)
		switch s, ok := item.(string); {
		case !ok:
			o.fail(path, "%s is not a text", describeValue(item))
		case len(s) > maxValue:
			o.fail(path, "is %d bytes long, more than %d", len(s), maxValue)
		default:
			list = append(list, o.keep(path, s))
		}
	}
	return list
}

// labels reads labels; too many are an error.
func (o object) labels(name string) map[string]string {
	m, size := o.textMap(name), 0
	for key, value := range m {
		size += len(key) + len(value)
	}
	if size > maxLabels {
		o.fail(o.at(name), "are %d bytes, more than %d", size, maxLabels)
		return nil
	}
	return m
}

// annotations reads the annotations of these keys. Of a value that is too long the start counts.
func (o object) annotations(keys ...string) map[string]string {
	all := o.textMap("annotations")
	var kept map[string]string
	for _, key := range keys {
		if value, ok := all[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = strings.ToValidUTF8(value[:min(len(value), maxValue)], "")
		}
	}
	return kept
}

// textMap reads a map of texts.
func (o object) textMap(name string) map[string]string {
	raw, ok := get[map[string]any](o, name, "an object")
	if !ok || len(raw) == 0 {
		return nil
	}
	m := make(map[string]string, len(raw))
	for key, value := range raw {
		s, ok := value.(string)
		if !ok && value != nil {
			o.fail(o.at(name), "the value of %s, %s, is not a text; write it in quotes", key, describeValue(value))
			continue
		}
		m[key] = s
	}
	return m
}

// with returns o with one field set.
func (o object) with(name string, value any) object {
	fields := map[string]any{}
	maps.Copy(fields, o.fields)
	fields[name] = value
	return object{fields: fields, path: o.path, errs: o.errs, left: o.left}
}

// describeValue describes a wrong value in a few words.
func describeValue(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	}
	return fmt.Sprint(v)
}

func template(o object) *policy.Template {
	return &policy.Template{
		APIVersion: o.text("apiVersion"), Kind: o.text("kind"),
		Namespace: o.text("namespace"), Name: o.text("name"),
	}
}

// intOrText reads an IntOrString; policy validates the text.
func intOrText(o object, name string) *intstr.IntOrString {
	switch v := o.fields[name].(type) {
	case nil:
	case string:
		return &intstr.IntOrString{Type: intstr.String, StrVal: o.text(name)}
	case int64:
		if int64(int32(v)) == v {
			return &intstr.IntOrString{Type: intstr.Int, IntVal: int32(v)}
		}
		o.fail(o.at(name), "%d is too large", v)
	default:
		o.fail(o.at(name), "%s is neither a whole number nor a percentage", describeValue(v))
	}
	return nil
}

// selector reads a label selector. An absent or empty one matches everything, as
// in OpenShift. One that does not parse is nil.
func selector(o object) labels.Selector {
	before := len(*o.errs)
	parsed := metav1.LabelSelector{MatchLabels: o.labels("matchLabels")}
	if n := len(parsed.MatchLabels); n > maxEntries {
		o.fail(o.at("matchLabels"), "has %d entries, more than %d", n, maxEntries)
	}
	for _, e := range o.shortList("matchExpressions") {
		parsed.MatchExpressions = append(parsed.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.text("key"), Operator: metav1.LabelSelectorOperator(e.text("operator")), Values: e.texts("values"),
		})
	}
	s, err := metav1.LabelSelectorAsSelector(&parsed)
	if err != nil {
		o.fail(o.path, "%s", err)
	}
	if len(*o.errs) > before {
		return nil
	}
	return s
}

// The methods below are for fenced's own documents. No API server has validated those before,
// so a key that is unknown or has no value is an error.

// allowKeys reports every key that is not among names, and every one without a
// value.
func (o object) allowKeys(names ...string) {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		switch {
		case !slices.Contains(names, name):
			o.fail(o.at(name), "unknown key%s", typo.Hint(name, names))
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
		o.fail(o.at(name), "%q is none of %s%s", s, strings.Join(choices, ", "), typo.Hint(s, choices))
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
