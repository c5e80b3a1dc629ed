package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"
)

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
		if err := setText(list.Index(i), strings.TrimSpace(word), tag, dir); err != nil {
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
