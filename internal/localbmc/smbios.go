package localbmc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// SystemUUID returns the UUID from the firmware of this host; root is the root of
// the file system. The kernel lets only root read it.
func SystemUUID(root fs.FS) (string, error) {
	f, err := root.Open("sys/class/dmi/id/product_uuid")
	if bad, ok := errors.AsType[*fs.PathError](err); ok {
		bad.Path = "/" + bad.Path // the path in its usual form
	}
	if err != nil {
		return "", fmt.Errorf("read this host's system UUID: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64)) // 36 and a newline
	if err != nil {
		return "", fmt.Errorf("read this host's system UUID: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
