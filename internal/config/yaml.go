package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/typo"
)

// reader walks one file's YAML against a struct and collects every error.
type reader struct {
	file string // as errors name it
	dir  string // what relative paths start from
	// lines is where each key stands that occurs.
	lines map[string]int
	errs  []error
	// failed are the elements of lists in which something is wrong.
	failed map[string]failedElement
	// checksFiles asks for warnings of what the daemon can start with; see look.
	checksFiles bool
	passwords   *passwordFiles // shared by the files of one check
	warnings    []string
	texts       map[string]string // see shared
	// lastPasswords are those of the last entry.
	lastPasswords [][]PasswordSource
}

// shared returns one copy of a text that many entries have, such as a user name.
func (r *reader) shared(text string) string {
	if known, ok := r.texts[text]; ok {
		return known
	}
	r.texts[text] = text
	return text
}

// failedElement is an element of a list, and what is wrong in it.
type failedElement struct {
	node *yaml.Node
	errs []error
}

func newReader(file string) *reader {
	return &reader{file: file, dir: filepath.Dir(file), lines: map[string]int{}, failed: map[string]failedElement{}, texts: map[string]string{}}
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
			r.fail(name.Line, full, "unknown key%s", typo.Hint(name.Value, keysOf(v.Type())))
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
		delete(r.lines, key) // a heading with nothing under it sets nothing, also not in a file that is laid over another
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
		element, full, before := list.Index(i), fmt.Sprintf("%s[%d]", key, i), len(r.errs)
		if d, ok := element.Addr().Interface().(interface{ setDefaults() }); ok {
			d.setDefaults()
		}
		emptyText := element.Kind() == reflect.String && item.Kind == yaml.ScalarNode && item.Value == "" // where a variable was not set: as a namespace, all of them
		if item.ShortTag() == "!!null" || emptyText {
			r.fail(item.Line, full, "the element is empty")
		} else {
			r.lines[full] = item.Line
			r.value(item, full, element, tag)
		}
		if errs := r.errs[before:]; len(errs) > 0 {
			r.failed[full] = failedElement{item, slices.Clone(errs)}
		}
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

// fields are the fields of each type by their keys: to look for them in the type takes longer than all else of reading a value.
var fields sync.Map // of map[string]reflect.StructField, by reflect.Type

func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	known, ok := fields.Load(t)
	if !ok {
		all := map[string]reflect.StructField{}
		for f := range t.Fields() {
			if key := f.Tag.Get("yaml"); key != "-" {
				all[key] = f
			}
		}
		known, _ = fields.LoadOrStore(t, all)
	}
	f, ok := known.(map[string]reflect.StructField)[name]
	return f, ok
}

func keysOf(t reflect.Type) (keys []string) {
	for f := range t.Fields() {
		if key := f.Tag.Get("yaml"); key != "-" {
			keys = append(keys, key)
		}
	}
	return keys
}

// maxFile bounds one file: the hosts of a hundred thousand nodes fit.
const maxFile = 64 << 20

// listFiles lists the *.yaml files of a directory in name order, without hidden ones. A
// directory that does not exist has none. "" has none either; it is not the current one.
func listFiles(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = CheckGuarded(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".yaml") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(files)
	return files, nil
}

// readBounded reads a regular file of at most limit bytes. It refuses one that everybody
// may write.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: it is larger than %d bytes", path, limit)
	}
	return data, nil
}

// parseYAML returns the one document of a file, nil for an empty file.
func parseYAML(file string, data []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, yamlError(file, data, err)
	}
	switch err := d.Decode(&more); {
	case err == nil:
		return nil, fmt.Errorf("%s:%d: a second document begins here; one per file is read", file, more.Line)
	case !errors.Is(err, io.EOF):
		return nil, yamlError(file, data, err)
	}
	root := doc.Content[0]
	if root.ShortTag() == "!!null" {
		return nil, nil
	}
	return root, nil
}

// yamlError puts the line that the parser's text begins with where editors
// find it.
func yamlError(file string, data []byte, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(text, "unknown anchor") { // the word may be a password that begins with a star // I25
		text = "aliases are not supported; quote a text that begins with *"
	}
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if line, msg, ok := strings.Cut(rest, ": "); ok {
			n, _ := strconv.Atoi(line) // digits only
			if at := typo.TabNear(data, n); at > 0 {
				return fmt.Errorf("%s:%d: %s", file, at, typo.TabText)
			}
			return fmt.Errorf("%s:%s: %s", file, line, msg)
		}
	}
	return fmt.Errorf("%s: %s", file, text)
}
