// Command image writes an OCI image layout, without a registry and without a container engine: image VERSION EPOCH LICENSES OUT
// ARCH=LAYER.tar... OUT becomes a layout with one index, named VERSION, of one image for each architecture; podman, skopeo and crane take it
// as oci:OUT:VERSION. The same layers give the same bytes.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is fenced with its group; packaging/image/build.sh gives them these numbers.
const user = "65532:65532"

func main() {
	if len(os.Args) < 6 {
		fmt.Fprintln(os.Stderr, "usage: image VERSION EPOCH LICENSES OUT ARCH=LAYER.tar...")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(version, epoch, licenses, out string, layers []string) error {
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("the time: %w", err)
	}
	created := time.Unix(seconds, 0).UTC()
	labels := map[string]string{
		"org.opencontainers.image.title":         "fenced",
		"org.opencontainers.image.description":   "Power fencing of bare-metal Kubernetes nodes",
		"org.opencontainers.image.version":       version,
		"org.opencontainers.image.created":       created.Format(time.RFC3339),
		"org.opencontainers.image.licenses":      licenses,
		"org.opencontainers.image.url":           "https://github.com/fenced/fenced",
		"org.opencontainers.image.source":        "https://github.com/fenced/fenced",
		"org.opencontainers.image.documentation": "https://github.com/fenced/fenced/tree/main/docs",
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, l := range layers {
		arch, file, ok := strings.Cut(l, "=")
		if !ok {
			return fmt.Errorf("%s is not ARCH=LAYER.tar", l)
		}
		img, err := image(arch, file, created, labels)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	index = mutate.Annotations(index, labels).(v1.ImageIndex)
	path, err := layout.Write(out, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version}))
}

func image(arch, file string, created time.Time, labels map[string]string) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(9), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(base, &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: v1.Time{Time: created},
		Config: v1.Config{
			User: user, Entrypoint: []string{"/usr/libexec/fenced/fenced"}, WorkingDir: "/",
			Env:     []string{"PATH=/usr/bin"},
			Volumes: map[string]struct{}{"/var/lib/fenced": {}},
			Labels:  labels,
		},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "packaging/image/build.sh"}})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(img, labels).(v1.Image), nil
}
