// Command sbom writes the bill of materials of the shipped programs, as CycloneDX JSON: sbom VERSION GOARCH SOURCE >FILE. It is made by
// cyclonedx-gomod; the licences are those of package licence, because cyclonedx-gomod guesses some wrong. The same source gives the same bytes.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/app"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/rs/zerolog"

	"github.com/fenced/fenced/packaging/tools/licence"
)

var programs = []string{"fenced", "fenced-login", "fencectl"}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION GOARCH SOURCE >FILE")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, version, arch, src string) error {
	modules, err := licence.Linked(src)
	if err != nil {
		return err
	}
	spdx := map[string][]string{}
	for _, m := range modules {
		spdx[m.Path] = m.SPDX
	}
	tree, err := tagged(version, src)
	if err != nil {
		return fmt.Errorf("copy the source: %w", err)
	}
	defer os.RemoveAll(tree)
	// cyclonedx-gomod reads of the environment what it is to look at.
	for name, value := range map[string]string{"GOOS": "linux", "GOARCH": arch, "CGO_ENABLED": "0", "GOFLAGS": "-tags=" + licence.Tags} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	merged := newMerged(version)
	for _, program := range programs {
		g, err := app.NewGenerator(tree, app.WithLogger(zerolog.Nop()), app.WithMainDir("cmd/"+program), app.WithIncludeStdlib(true))
		if err != nil {
			return err
		}
		bom, err := g.Generate()
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		if err := merged.add(program, bom, spdx); err != nil {
			return err
		}
	}
	out := merged.bom()
	encoder := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	encoder.SetEscapeHTML(false)
	return encoder.EncodeVersion(out, cdx.SpecVersion1_6)
}

// tagged copies what the programs are built of into a repository of git whose one commit has the version as a tag: cyclonedx-gomod
// takes the version of nothing else.
func tagged(version, src string) (string, error) {
	tree, err := os.MkdirTemp("", "fenced-sbom")
	if err != nil {
		return "", err
	}
	for _, dir := range []string{"cmd", "internal", "configs"} {
		if err := os.CopyFS(filepath.Join(tree, dir), os.DirFS(filepath.Join(src, dir))); err != nil {
			return tree, err
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "LICENSE"} {
		text, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return tree, err
		}
		if err := os.WriteFile(filepath.Join(tree, name), text, 0o644); err != nil {
			return tree, err
		}
	}
	repo, err := git.PlainInit(tree, false)
	if err != nil {
		return tree, err
	}
	work, err := repo.Worktree()
	if err != nil {
		return tree, err
	}
	commit, err := work.Commit("fenced", &git.CommitOptions{AllowEmptyCommits: true, Author: &object.Signature{Name: "fenced", When: time.Unix(0, 0)}})
	if err != nil {
		return tree, err
	}
	_, err = repo.CreateTag(semver(version), commit, nil)
	return tree, err
}

// semver is the version as modules of Go have it; rpm and dpkg write what is before a version with a tilde.
func semver(version string) string {
	return "v" + strings.NewReplacer("~", "-", "^", "+").Replace(version)
}

// merged is one bill of all programs.
type merged struct {
	version      string
	programs     []cdx.Component
	components   map[string]cdx.Component // by reference
	dependencies map[string][]string      // by reference
}

func newMerged(version string) *merged {
	return &merged{version: version, components: map[string]cdx.Component{}, dependencies: map[string][]string{}}
}

// add takes the bill of a program over. It fails for a module that package licence has not seen.
func (m *merged) add(program string, bom *cdx.BOM, spdx map[string][]string) error {
	main := *bom.Metadata.Component
	main.Name, main.Version = program, m.version
	main.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	m.programs = append(m.programs, main)
	for _, c := range *bom.Components {
		ids := spdx[c.Name]
		switch len(ids) {
		case 0:
			return fmt.Errorf("%s is in %s, and package licence knows nothing of it", c.Name, program)
		case 1:
			c.Licenses = &cdx.Licenses{{License: &cdx.License{ID: ids[0]}}}
		default:
			c.Licenses = &cdx.Licenses{{Expression: strings.Join(ids, " AND ")}}
		}
		m.components[c.BOMRef] = c
	}
	for _, d := range *bom.Dependencies {
		on := m.dependencies[d.Ref]
		if d.Dependencies != nil {
			on = append(on, *d.Dependencies...)
		}
		m.dependencies[d.Ref] = on
	}
	return nil
}

func (m *merged) bom() *cdx.BOM {
	out := cdx.NewBOM()
	out.Metadata = &cdx.Metadata{
		Component: &cdx.Component{
			BOMRef: "fenced", Type: cdx.ComponentTypeApplication, Name: "fenced", Version: m.version,
			Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}, Components: &m.programs,
		},
		Tools: &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "cyclonedx-gomod", Version: toolVersion()}}},
	}
	components, dependencies := []cdx.Component{}, []cdx.Dependency{}
	for _, c := range m.components {
		components = append(components, c)
	}
	for ref, on := range m.dependencies {
		slices.Sort(on)
		on = slices.Compact(on)
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &on})
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	slices.SortFunc(dependencies, func(a, b cdx.Dependency) int { return strings.Compare(a.Ref, b.Ref) })
	out.Components, out.Dependencies = &components, &dependencies
	return out
}

// toolVersion is the version of cyclonedx-gomod that this program is linked with.
func toolVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/CycloneDX/cyclonedx-gomod" {
			return m.Version
		}
	}
	return ""
}
