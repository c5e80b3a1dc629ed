// Command image writes an OCI image of one layer, without a registry and without a container
// engine: image ARCH VERSION LAYER.tar OUTDIR. OUTDIR becomes an OCI image layout, which
// podman, skopeo and crane take as oci:OUTDIR. The same layer gives the same bytes.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// The media types of the OCI image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// user is fenced with its group; packaging/image/build.sh gives them these numbers.
const user = "65532:65532"

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: image ARCH VERSION LAYER.tar OUTDIR")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(arch, version, layer, out string) error {
	plain, err := os.ReadFile(layer)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(plain); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(out, "blobs/sha256"), 0o755); err != nil {
		return err
	}
	layerBlob, err := blob(out, typeLayer, packed.Bytes())
	if err != nil {
		return err
	}
	config, err := jsonBlob(out, typeConfig, map[string]any{
		"architecture": arch, "os": "linux",
		"config": map[string]any{
			"User": user, "Entrypoint": []string{"/usr/libexec/fenced/fenced"}, "WorkingDir": "/",
			"Env":     []string{"PATH=/usr/bin"},
			"Volumes": map[string]any{"/var/lib/fenced": struct{}{}},
			"Labels":  map[string]string{"org.opencontainers.image.title": "fenced", "org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(plain)}},
	})
	if err != nil {
		return err
	}
	manifest, err := jsonBlob(out, typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []descriptor{layerBlob},
	})
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{"org.opencontainers.image.ref.name": version}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "index.json"), index, 0o644)
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// blob writes what is found by its digest.
func blob(out, mediaType string, data []byte) (descriptor, error) {
	d := descriptor{MediaType: mediaType, Digest: digest(data), Size: len(data)}
	return d, os.WriteFile(filepath.Join(out, "blobs/sha256", d.Digest[len("sha256:"):]), data, 0o644)
}

func jsonBlob(out, mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return blob(out, mediaType, data)
}
