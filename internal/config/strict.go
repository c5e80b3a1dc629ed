package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// reader walks one file's YAML against a struct and collects every error.
type reader struct {
	file string // as errors name it
	dir  string // what relative paths start from
	// lines is where each key stands that occurs.
	lines map[string]int
	errs  []error
	// checksFiles asks for warnings of what the daemon can start with; see look.
	checksFiles bool
	warnings    []string
}

func newReader(file string) *reader {
	return &reader{file: file, dir: filepath.Dir(file), lines: map[string]int{}}
}

func (r *reader) at(line int) string { return fmt.Sprintf("%s:%d", r.file, line) }

func (r *reader) fail(line int, key, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: %s: %s", r.at(line), key, fmt.Sprintf(format, args...)))
}

// refuse is fail on the line of the key, and on the given one where the key
// does not stand.
func (r *reader) refuse(line int, key, format string, args ...any) {
	r.fail(r.lineOf(key, line), key, format, args...)
}

// lineOf is the line of the key, and otherwise where the key does not stand.
func (r *reader) lineOf(key string, otherwise int) int { return cmp.Or(r.lines[key], otherwise) }

// mapping reads the keys of n into the struct v. A field named Line gets the
// line on which n begins.
func (r *reader) mapping(n *yaml.Node, key string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		r.wrongKind(n, key, "keys with values")
		return
	}
	if line := v.FieldByName("Line"); line.IsValid() {
		line.SetInt(int64(n.Line))
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		full := join(key, name.Value)
		if name.Kind != yaml.ScalarNode {
			r.fail(name.Line, full, "a key must be one word")
			continue
		}
		if line, ok := first[name.Value]; ok {
			r.fail(name.Line, full, "duplicate key, first on line %d", line)
			continue
		}
		first[name.Value] = name.Line
		field, ok := fieldOf(v.Type(), name.Value)
		if !ok {
			r.fail(name.Line, full, "unknown key%s", didYouMean(name.Value, keysOf(v.Type())))
			continue
		}
		r.lines[full] = name.Line
		r.value(value, full, v.FieldByIndex(field.Index), field.Tag)
	}
}

// value reads n into v. Errors do not repeat the value of a key with the tag
// show:"no": somebody may have written a password there. // I25
func (r *reader) value(n *yaml.Node, key string, v reflect.Value, tag reflect.StructTag) {
	kind := v.Kind()
	switch {
	case n.Kind == yaml.AliasNode:
		r.fail(n.Line, key, "aliases are not supported; write the value out")
	case (kind == reflect.Struct || kind == reflect.Slice || kind == reflect.Map) && n.ShortTag() == "!!null":
		// A heading with nothing under it sets nothing.
	case kind == reflect.Struct:
		r.mapping(n, key, v)
	case kind == reflect.Slice:
		r.list(n, key, v, tag)
	case kind == reflect.Map:
		r.words(n, key, v, tag)
	default:
		r.scalar(n, key, v, tag)
	}
}

func (r *reader) list(n *yaml.Node, key string, v reflect.Value, tag reflect.StructTag) {
	if n.Kind != yaml.SequenceNode {
		r.wrongKind(n, key, "a list")
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		element, full := list.Index(i), fmt.Sprintf("%s[%d]", key, i)
		if d, ok := element.Addr().Interface().(interface{ setDefaults() }); ok {
			d.setDefaults()
		}
		if item.ShortTag() == "!!null" {
			r.fail(item.Line, full, "the element is empty")
			continue
		}
		r.lines[full] = item.Line
		r.value(item, full, element, tag)
	}
	v.Set(list)
}

// words reads a mapping whose keys others define. A value may be any scalar: an
// outlet is often a number.
func (r *reader) words(n *yaml.Node, key string, v reflect.Value, tag reflect.StructTag) {
	if n.Kind != yaml.MappingNode && tag.Get("show") == "no" {
		r.fail(n.Line, key, "keys with values are needed here")
		return
	}
	if n.Kind != yaml.MappingNode {
		r.wrongKind(n, key, "keys with values")
		return
	}
	words := reflect.MakeMap(v.Type())
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, item := n.Content[i], n.Content[i+1]
		full, word := key+"."+name.Value, reflect.New(v.Type().Elem()).Elem()
		switch {
		case name.Kind != yaml.ScalarNode || !parameterName().MatchString(name.Value):
			r.fail(name.Line, key, "%q is not the name of a parameter", name.Value)
		case words.MapIndex(reflect.ValueOf(name.Value)).IsValid():
			r.fail(name.Line, full, "duplicate key")
		case item.Kind != yaml.ScalarNode || item.ShortTag() == "!!null":
			r.wrongKind(item, full, "text")
		default:
			r.lines[full] = name.Line
			if err := setText(word, item.Value, tag, r.dir); err != nil {
				r.fail(item.Line, full, "%v", err)
			}
			words.SetMapIndex(reflect.ValueOf(name.Value), word)
		}
	}
	v.Set(words)
}

var durationType = reflect.TypeFor[time.Duration]()

func (r *reader) scalar(n *yaml.Node, key string, v reflect.Value, tag reflect.StructTag) {
	want, example := "!!str", "text"
	switch {
	case v.Type() == durationType:
		want, example = n.ShortTag(), "a duration" // 0 needs no unit
	case v.Kind() == reflect.Int:
		want, example = "!!int", "a whole number"
	case v.Kind() == reflect.Bool:
		want, example = "!!bool", "true or false"
	}
	switch {
	case n.Kind != yaml.ScalarNode, n.ShortTag() == "!!null":
		r.wrongKind(n, key, example)
	case n.ShortTag() != want && tag.Get("show") == "no":
		r.fail(n.Line, key, "is not text; quote it")
	case n.ShortTag() != want && want == "!!str":
		r.fail(n.Line, key, "%s is not text; quote it: %q", n.Value, n.Value)
	case n.ShortTag() != want:
		r.fail(n.Line, key, "%q is not %s", n.Value, example)
	default:
		if err := setText(v, n.Value, tag, r.dir); err != nil {
			r.fail(n.Line, key, "%v", err)
		}
	}
}

func (r *reader) wrongKind(n *yaml.Node, key, want string) {
	found := map[yaml.Kind]string{yaml.MappingNode: "keys with values", yaml.SequenceNode: "a list", yaml.AliasNode: "an alias"}[n.Kind]
	switch {
	case n.Kind != yaml.ScalarNode:
	case n.ShortTag() == "!!null":
		found = "nothing"
	default:
		found = fmt.Sprintf("%q", n.Value)
	}
	if key == "" {
		key = "the file"
	}
	r.fail(n.Line, key, "%s is needed here, not %s", want, found)
}

func join(key, name string) string { return strings.TrimPrefix(key+"."+name, ".") }

func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	for f := range t.Fields() {
		if f.Tag.Get("yaml") == name && name != "-" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func keysOf(t reflect.Type) (keys []string) {
	for f := range t.Fields() {
		if key := f.Tag.Get("yaml"); key != "-" {
			keys = append(keys, key)
		}
	}
	return keys
}
