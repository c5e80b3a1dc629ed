package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// reader walks one file's YAML against a struct and collects every error.
type reader struct {
	file string // as errors name it
	dir  string // what relative paths start from
	// lines notes file:line of each key that occurs; nil when nobody asks.
	lines map[string]string
	// root is what refuse looks keys up in; may be nil.
	root *yaml.Node
	errs []error
	// looks asks for warnings of what the daemon can start with; see look.
	looks    bool
	warnings []string
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
func (r *reader) lineOf(key string, otherwise int) int {
	if n := lineOf(r.root, key); n > 0 {
		return n
	}
	return otherwise
}

// lineOf finds a key like hosts[2].bmc.address beneath n; 0 = it is not there.
func lineOf(n *yaml.Node, key string) int {
	line := 0
	for _, name := range strings.FieldsFunc(key, func(c rune) bool { return c == '.' || c == '[' }) {
		var next *yaml.Node
		switch {
		case n == nil:
		case n.Kind == yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == name {
					line, next = n.Content[i].Line, n.Content[i+1]
				}
			}
		case n.Kind == yaml.SequenceNode:
			if i, err := strconv.Atoi(strings.TrimSuffix(name, "]")); err == nil && i < len(n.Content) {
				line, next = n.Content[i].Line, n.Content[i]
			}
		}
		if next == nil {
			return 0
		}
		n = next
	}
	return line
}

func (r *reader) note(key string, line int) {
	if r.lines != nil {
		r.lines[key] = r.at(line)
	}
}

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
		r.note(full, name.Line)
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
		r.note(full, item.Line)
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
		case name.Kind != yaml.ScalarNode || !parameterName.MatchString(name.Value):
			r.fail(name.Line, key, "%q is not the name of a parameter", name.Value)
		case words.MapIndex(reflect.ValueOf(name.Value)).IsValid():
			r.fail(name.Line, full, "duplicate key")
		case item.Kind != yaml.ScalarNode || item.ShortTag() == "!!null":
			r.wrongKind(item, full, "text")
		default:
			r.note(full, name.Line)
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
