package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
		return nil, yamlError(file, err)
	}
	switch err := d.Decode(&more); {
	case err == nil:
		return nil, fmt.Errorf("%s:%d: a second document begins here; one per file is read", file, more.Line)
	case !errors.Is(err, io.EOF):
		return nil, yamlError(file, err)
	}
	root := doc.Content[0]
	if root.ShortTag() == "!!null" {
		return nil, nil
	}
	return root, nil
}

// yamlError puts the line that the parser's text begins with where editors
// find it.
func yamlError(file string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(text, "unknown anchor") { // the word may be a password that begins with a star // I25
		text = "aliases are not supported; quote a text that begins with *"
	}
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if line, msg, ok := strings.Cut(rest, ": "); ok {
			return fmt.Errorf("%s:%s: %s", file, line, msg)
		}
	}
	return fmt.Errorf("%s: %s", file, text)
}
