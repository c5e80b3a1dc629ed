// Command sbom writes the bill of materials of programs that Go built, as CycloneDX JSON:
// sbom VERSION PROGRAM... >FILE. It takes what `go version -m -json PROGRAM` shows: the
// modules that are in the program, and no others. The same programs give the same bytes.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// The parts of CycloneDX 1.5 that are used.
type (
	bom struct {
		Format      string      `json:"bomFormat"`
		SpecVersion string      `json:"specVersion"`
		Version     int         `json:"version"`
		Metadata    metadata    `json:"metadata"`
		Components  []component `json:"components"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref,omitempty"`
		Name       string     `json:"name"`
		Version    string     `json:"version,omitempty"`
		PURL       string     `json:"purl,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION PROGRAM... >FILE")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, version string, programs []string) error {
	libraries := map[string]component{}
	out := bom{Format: "CycloneDX", SpecVersion: "1.5", Version: 1}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read how %s was built: %w", path, err)
		}
		out.Metadata.Component = component{Type: "application", Name: info.Main.Path, Version: version}
		out.Components = append(out.Components, component{
			Type: "application", Ref: filepath.Base(path), Name: filepath.Base(path), Version: version, Properties: builtWith(info),
		})
		for _, m := range info.Deps {
			c := library(m)
			libraries[c.PURL] = c
		}
		std := component{Type: "library", Name: "std", Version: info.GoVersion, PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
		libraries[std.PURL] = std
	}
	for _, c := range libraries {
		out.Components = append(out.Components, c)
	}
	slices.SortFunc(out.Components, func(a, b component) int { return strings.Compare(a.Type+a.PURL+a.Name, b.Type+b.PURL+b.Name) })
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

// library is a module as it was built: a replacement is what is really in the program.
func library(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	return component{Type: "library", Ref: "pkg:golang/" + m.Path + "@" + m.Version, Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
}

// builtWith are the settings that decide what is in the program.
func builtWith(info *buildinfo.BuildInfo) (all []property) {
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED", "-tags", "-trimpath":
			all = append(all, property{Name: "go:" + s.Key, Value: s.Value})
		}
	}
	return all
}
