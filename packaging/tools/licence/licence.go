// Package licence finds the modules that are linked into the shipped programs, the files with their licences and notices, and which
// licences those are.
package licence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Archs are the architectures, by Go's names, that fenced is shipped for.
var Archs = []string{"amd64", "arm64"}

// Tags are the build tags of the shipped programs.
const Tags = "grpcnotrace"

// Std is the path under which the standard library and the run time of Go are listed.
const Std = "std"

// Module is what a module adds to the shipped programs.
type Module struct {
	Path, Version string // the version of Std is empty: each build says its own
	Files         []File
	SPDX          []string // identifiers, sorted, each once
}

// File is a licence or a notice. Name is relative to the module.
type File struct{ Name, Text string }

// goPackage is what `go list -json` says of a package, as far as it is used.
type goPackage struct {
	Dir      string
	Standard bool
	Module   *goModule
}

type goModule struct {
	Path, Version, Dir string
	Main               bool
	Replace            *goModule
}

// Linked returns the modules, sorted by path, whose packages the programs below src/cmd contain on any architecture, with all licences and
// notices that hold for those packages. It fails for a module without a licence, and for a licence that it does not know.
func Linked(src string) ([]Module, error) {
	found := map[string]*Module{}
	for _, arch := range Archs {
		packages, err := list(src, arch)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			if p.Standard || p.Module == nil || p.Module.Main {
				continue
			}
			m := p.Module
			if m.Replace != nil { // what is really in the program
				m = m.Replace
			}
			if found[m.Path] == nil {
				found[m.Path] = &Module{Path: m.Path, Version: m.Version}
			}
			if err := found[m.Path].addAbove(p.Dir, m.Dir); err != nil {
				return nil, err
			}
		}
	}
	std := &Module{Path: Std}
	root, err := run(src, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	dir := strings.TrimSpace(string(root))
	if err := std.addAbove(dir, dir); err != nil {
		return nil, err
	}
	found[Std] = std
	var all []Module
	for _, m := range found {
		slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
		if m.SPDX, err = m.identify(); err != nil {
			return nil, err
		}
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// Expression is the SPDX expression over the licences of fenced and of all modules.
func Expression(modules []Module) string {
	all := []string{"Apache-2.0"} // fenced's own
	for _, m := range modules {
		all = append(all, m.SPDX...)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " AND ")
}

func list(src, arch string) ([]goPackage, error) {
	out, err := run(src, []string{"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0", "GOFLAGS=-tags=" + Tags}, "go", "list", "-deps", "-json=Dir,Standard,Module", "./cmd/...")
	if err != nil {
		return nil, err
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list prints: %w", err)
		}
		all = append(all, p)
	}
}

func run(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return out, nil
}

var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|patents)(\.(md|txt|libyaml)|-[\w.-]+)?$`)

// addAbove adds the files of dir and of the directories above it, up to the module's own.
func (m *Module) addAbove(dir, top string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("look for the licences of %s: %w", m.Path, err)
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) {
				continue
			}
			name, err := filepath.Rel(top, filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			if slices.ContainsFunc(m.Files, func(f File) bool { return f.Name == name }) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			m.Files = append(m.Files, File{Name: filepath.ToSlash(name), Text: clean(string(text))})
		}
		if dir == top || len(dir) < len(top) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// clean is the text without what makes the same text differ: line ends, blanks at the ends of lines, empty lines around it. Control
// characters of other people's files reach no terminal.
func clean(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		line = strings.Map(func(r rune) rune {
			if r < ' ' && r != '\t' || r == 0x7f {
				return -1
			}
			return r
		}, strings.ToValidUTF8(line, "?"))
		lines[i] = strings.TrimRight(line, " \t")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n") + "\n"
}

func (m *Module) identify() ([]string, error) {
	var all []string
	for _, f := range m.Files {
		base := strings.ToLower(filepath.Base(f.Name))
		if strings.HasPrefix(base, "notice") || strings.HasPrefix(base, "patents") {
			continue // it adds to a licence, and is none
		}
		ids := Identify(f.Text)
		if len(ids) == 0 {
			return nil, fmt.Errorf("%s %s: the licence in %s is none that package licence knows; read it, and add it if fenced may link the module", m.Path, m.Version, f.Name)
		}
		all = append(all, ids...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s %s has no licence file; fenced may not link the module", m.Path, m.Version)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// texts are phrases that only this licence has, with blanks made one and in small letters.
var texts = []struct {
	id     string
	phrase *regexp.Regexp
}{
	{"Apache-2.0", regexp.MustCompile(`apache license version 2\.0, january 2004|licensed under the apache license, version 2\.0`)},
	{"MIT", regexp.MustCompile(`permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files.* the software is provided "as is"`)},
	{"ISC", regexp.MustCompile(`permission to use, copy, modify, and(/or)? distribute this software for any purpose with or without fee is hereby granted, provided that`)},
	{"MPL-2.0", regexp.MustCompile(`^mozilla public license,? version 2\.0 1\. definitions`)},
}

var (
	blanks  = regexp.MustCompile(`\s+`)
	bsd     = regexp.MustCompile(`redistribution and use in source and binary forms, with or without modification, are permitted provided that the following conditions are met`)
	endorse = regexp.MustCompile(`used to endorse or promote products`)
	// foreign are licences that programs under Apache-2.0 may not contain, and clauses that make a known licence another one.
	foreign = regexp.MustCompile(`gnu (affero |lesser )?general public license|all advertising materials|server side public|business source|commons clause|creative commons`)
)

// Identify returns the SPDX identifiers of the licences in a text, or nothing where it knows none, or where another one stands beside.
func Identify(text string) []string {
	text = strings.ToLower(blanks.ReplaceAllString(strings.TrimSpace(text), " "))
	text = strings.NewReplacer("“", `"`, "”", `"`, "``", `"`, "''", `"`).Replace(text)
	var all []string
	for _, t := range texts {
		if t.phrase.MatchString(text) {
			all = append(all, t.id)
		}
	}
	if bsd.MatchString(text) {
		if endorse.MatchString(text) {
			all = append(all, "BSD-3-Clause")
		} else {
			all = append(all, "BSD-2-Clause")
		}
	}
	// The Mozilla licence itself names GNU's, as those that a user may choose.
	if foreign.MatchString(text) && !slices.Contains(all, "MPL-2.0") {
		return nil
	}
	slices.Sort(all)
	return all
}
