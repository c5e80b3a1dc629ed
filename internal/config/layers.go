package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/viper"
)

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

// isText says whether environment and command line can give the value.
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
			l.dropElements(leaf.key + "[")
			setNested(said, strings.Split(leaf.key, "."), leaf.value.Interface())
		}
	}
	for key, line := range lines {
		l.lines[key] = fmt.Sprintf("%s:%d", file, line)
	}
	return l.v.MergeConfigMap(said)
}

// dropElements drops where the elements of a list stood that is now replaced.
func (l *layers) dropElements(prefix string) {
	maps.DeleteFunc(l.lines, func(key, _ string) bool { return strings.HasPrefix(key, prefix) })
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
	return fmt.Errorf("command line: %s: unknown key, or one that only a file can set%s", key, didYouMean(key, keys))
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
