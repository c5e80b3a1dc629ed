package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"

	"go.yaml.in/yaml/v3"
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
