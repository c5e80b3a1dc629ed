// Command provenance prints an in-toto statement with the provenance of SLSA for the files of a release: provenance VERSION COMMIT FILE...
// It says what was built, from which commit, and by which Go; it has no time, so the same files give the same bytes.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	source     = "git+https://github.com/fenced/fenced"
	buildType  = "https://github.com/fenced/fenced/blob/main/docs/releasing.md#make-a-release"
	buildByWho = "https://github.com/fenced/fenced/blob/main/packaging/release.sh"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: provenance VERSION COMMIT FILE...")
		os.Exit(2)
	}
	text, err := statement(os.Args[1], os.Args[2], os.Args[3:])
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "provenance:", err)
		os.Exit(1)
	}
}

func statement(version, commit string, files []string) ([]byte, error) {
	var subjects []*intoto.ResourceDescriptor
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, &intoto.ResourceDescriptor{
			Name: filepath.Base(file), Digest: map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(data))},
		})
	}
	external, err := structpb.NewStruct(map[string]any{"version": version, "source": source})
	if err != nil {
		return nil, err
	}
	made := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: buildType, ExternalParameters: external,
			ResolvedDependencies: []*intoto.ResourceDescriptor{
				{Uri: source, Digest: map[string]string{"gitCommit": commit}},
				{Name: "go", Uri: "https://go.dev/dl/" + runtime.Version() + ".src.tar.gz"},
			},
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: buildByWho}},
	}
	if err := made.Validate(); err != nil {
		return nil, fmt.Errorf("the provenance: %w", err)
	}
	plain, err := protojson.Marshal(made)
	if err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(plain, predicate); err != nil {
		return nil, err
	}
	s := &intoto.Statement{Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: "https://slsa.dev/provenance/v1", Predicate: predicate}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("the statement: %w", err)
	}
	if plain, err = protojson.Marshal(s); err != nil {
		return nil, err
	}
	// protojson varies the blanks on purpose.
	var b bytes.Buffer
	if err := json.Indent(&b, plain, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
