// Command notices prints the licences and notices of all that is linked into the shipped programs: notices SOURCE >THIRD_PARTY_NOTICES.
// With -check it compares them with the file in SOURCE instead.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fenced/fenced/packaging/tools/licence"
)

const file = "THIRD_PARTY_NOTICES"

func main() {
	check := flag.Bool("check", false, "compare with SOURCE/"+file+", and print nothing")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: notices [-check] SOURCE")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(src string, check bool) error {
	modules, err := licence.Linked(src)
	if err != nil {
		return err
	}
	text := render(modules)
	if !check {
		_, err := os.Stdout.WriteString(text)
		return err
	}
	committed, err := os.ReadFile(filepath.Join(src, file))
	if err != nil {
		return err
	}
	if string(committed) != text {
		return fmt.Errorf("%s is not what go.mod links now; run: make notices", file)
	}
	return nil
}

// render prints each text once, below all modules that have it.
func render(modules []licence.Module) string {
	var order []string
	holders := map[string][]string{}
	for _, m := range modules {
		for _, f := range m.Files {
			if holders[f.Text] == nil {
				order = append(order, f.Text)
			}
			name := strings.TrimSpace(m.Path + " " + m.Version)
			holders[f.Text] = append(holders[f.Text], name+": "+f.Name)
		}
	}
	var b strings.Builder
	b.WriteString(`Notices of the software that fenced contains

fenced, fencectl and fenced-login are static programs of Go. They contain the modules below, and the standard library and the run
time of Go. fenced itself is under the Apache License, version 2.0; see LICENSE. The source of each module is at
https://proxy.golang.org/MODULE/@v/VERSION.zip, with capital letters in MODULE written as ! and the small letter.

`)
	fmt.Fprintf(&b, "License: %s\n\n", licence.Expression(modules))
	for _, m := range modules {
		fmt.Fprintf(&b, "    %s  (%s)\n", strings.TrimSpace(m.Path+" "+m.Version), strings.Join(m.SPDX, " AND "))
	}
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s", strings.Repeat("=", 80), strings.Join(holders[text], "\n"), text)
	}
	return b.String()
}
