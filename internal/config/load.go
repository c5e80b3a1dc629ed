package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/typo"
)

// Load reads the main file and the conf.d beside it, lays environment
// (FENCED_GUARDS_QUIETPERIOD=0s) and then overrides ("guards.quietPeriod=0s",
// from the command line) over them, and checks the whole. Its error joins every
// problem there is, each naming file, line and key.
func Load(file string, overrides ...string) (Config, error) {
	c, errs := load(file, overrides)
	if len(errs) > 0 {
		return Config{}, errors.Join(errs...)
	}
	return c, nil
}

// load is Load that also gives what could be read in spite of the errors: c.File is empty if
// there is nothing.
func load(file string, overrides []string) (c Config, errs []error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return Config{}, []error{fmt.Errorf("load configuration: %w", err)}
	}
	l := newLayers()
	if err := l.addFile(file); err != nil {
		return Config{}, []error{err} // without the main file all else is noise
	}
	more, err := listFiles(Config{File: file}.ConfDir())
	l.fail(err)
	for _, f := range more {
		l.fail(l.addFile(f))
	}
	l.addEnvironment()
	for _, o := range overrides {
		l.fail(l.addOverride(o))
	}
	c = l.merge()
	c.File = file
	return c, append(l.errs, verify(c, l.origin)...)
}

// readConfig reads one file strictly. Keys that it does not set keep their default. lines
// is where each key stands that it sets; nil if the file is not YAML, or no mapping.
func readConfig(file string, data []byte) (c Config, lines map[string]int, errs []error) {
	c = Default()
	root, err := parseYAML(file, data)
	if err != nil {
		return c, nil, []error{err}
	}
	r := newReader(file)
	if root == nil {
		return c, r.lines, nil
	}
	r.mapping(root, "", reflect.ValueOf(&c).Elem())
	if root.Kind != yaml.MappingNode {
		return c, nil, r.errs
	}
	return c, r.lines, r.errs
}

// layers lays the sources of fenced.yaml over each other with viper. Values
// from files are typed already; environment and overrides come as text and are
// read when all is merged.
type layers struct {
	v    *viper.Viper
	errs []error
	// lines is where the files say each key; overridden what the command line says.
	lines      map[string]string
	overridden map[string]bool
}

// leaf is one key that has a value of its own.
type leaf struct {
	key   string
	tag   reflect.StructTag
	value reflect.Value
}

// leaves lists the keys of c; setting a leaf's value sets c.
func leaves(c *Config) []leaf { return appendLeaves(nil, "", reflect.ValueOf(c).Elem()) }

func appendLeaves(list []leaf, prefix string, v reflect.Value) []leaf {
	for f, value := range v.Fields() {
		name := f.Tag.Get("yaml")
		switch key := join(prefix, name); {
		case name == "-":
		case f.Type.Kind() == reflect.Struct:
			list = appendLeaves(list, key, value)
		default:
			list = append(list, leaf{key: key, tag: f.Tag, value: value})
		}
	}
	return list
}

// isText returns whether environment and command line can give the value.
func (l leaf) isText() bool {
	return l.value.Kind() != reflect.Slice || l.value.Type().Elem().Kind() == reflect.String
}

func newLayers() *layers {
	l := &layers{v: viper.New(), lines: map[string]string{}, overridden: map[string]bool{}}
	l.v.AllowEmptyEnv(true) // FENCED_METRICS_LISTEN= turns metrics off
	c := Default()
	for _, leaf := range leaves(&c) {
		l.v.SetDefault(leaf.key, leaf.value.Interface())
	}
	return l
}

func (l *layers) fail(err error) {
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

// addFile lays a file over what is there. Its error says that the file as a
// whole could not be read; what is wrong inside it is collected.
func (l *layers) addFile(file string) error {
	data, err := readBounded(file, maxFile)
	if err != nil {
		return fmt.Errorf("load configuration: %w", err)
	}
	c, lines, errs := readConfig(file, data)
	if lines == nil {
		return errors.Join(errs...)
	}
	l.errs = append(l.errs, errs...)
	said := map[string]any{}
	for _, leaf := range leaves(&c) {
		if lines[leaf.key] != 0 {
			maps.DeleteFunc(l.lines, func(key, _ string) bool { return strings.HasPrefix(key, leaf.key+"[") })
			setNested(said, strings.Split(leaf.key, "."), leaf.value.Interface())
		}
	}
	for key, line := range lines {
		l.lines[key] = fmt.Sprintf("%s:%d", file, line)
	}
	return l.v.MergeConfigMap(said)
}

func setNested(m map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		inner, ok := m[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			m[name] = inner
		}
		m = inner
	}
	m[path[len(path)-1]] = value
}

// envName is the environment variable of a key.
func envName(key string) string {
	return "FENCED_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func (l *layers) addEnvironment() {
	c := Default()
	for _, leaf := range leaves(&c) {
		if leaf.isText() {
			l.fail(l.v.BindEnv(leaf.key, envName(leaf.key)))
		}
	}
}

// addOverride takes KEY=VALUE as the command line gives it.
func (l *layers) addOverride(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("command line: %q is not KEY=VALUE", text)
	}
	c := Default()
	var keys []string
	for _, leaf := range leaves(&c) {
		if !leaf.isText() {
			continue
		}
		if leaf.key == key {
			l.v.Set(key, value)
			l.overridden[key] = true
			return nil
		}
		keys = append(keys, leaf.key)
	}
	return fmt.Errorf("command line: %s: unknown key, or one that only a file can set%s", key, typo.Hint(key, keys))
}

// merge gives the configuration that all layers make together.
func (l *layers) merge() Config {
	c := Default()
	dir, err := os.Getwd() // a path from the shell starts where the shell is
	l.fail(err)
	for _, leaf := range leaves(&c) {
		value := l.v.Get(leaf.key)
		text, ok := value.(string)
		switch {
		case !ok:
			leaf.value.Set(reflect.ValueOf(value))
			continue
		case leaf.value.Kind() == reflect.Slice:
			err = setListText(leaf.value, text, leaf.tag, dir)
		default:
			err = setText(leaf.value, text, leaf.tag, dir)
		}
		if err != nil {
			l.fail(fmt.Errorf("%s: %s: %w", l.origin(leaf.key), leaf.key, err))
		}
	}
	return c
}

// origin says for people where the value of a key comes from.
func (l *layers) origin(key string) string {
	_, env := os.LookupEnv(envName(key))
	switch {
	case l.overridden[key]:
		return "command line"
	case env:
		return "environment " + envName(key)
	case l.lines[key] != "":
		return l.lines[key]
	}
	return "default"
}

// setText puts the text of one value into v, checked as its tags say. It
// serves files, environment and command line alike.
func setText(v reflect.Value, text string, tag reflect.StructTag, dir string) error {
	parsed := reflect.New(v.Type()).Elem()
	switch {
	case v.Type() == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration; write a number with its unit, as 300s or 10m", text)
		}
		parsed.SetInt(int64(d))
	case v.Kind() == reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		parsed.SetInt(int64(n))
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		parsed.SetBool(b)
	default:
		if is := tag.Get("is"); is == "path" || is == "socket" {
			text = absolute(dir, text)
		}
		parsed.SetString(text)
	}
	if err := checkValue(parsed, tag); err != nil {
		return err
	}
	v.Set(parsed)
	return nil
}

// setListText is setText for a list of words with commas between them.
func setListText(v reflect.Value, text string, tag reflect.StructTag, dir string) error {
	var words []string
	if strings.TrimSpace(text) != "" {
		words = strings.Split(text, ",")
	}
	list := reflect.MakeSlice(v.Type(), len(words), len(words))
	for i, word := range words {
		if word = strings.TrimSpace(word); word == "" {
			return errors.New("the list has a comma with nothing beside it")
		}
		if err := setText(list.Index(i), word, tag, dir); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

// absolute resolves a path of a file in dir; an empty one stays empty.
func absolute(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
