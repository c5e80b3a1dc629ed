package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Tail calls f with the entries in the last bytes of the newest file, oldest first. It verifies
// nothing, and passes over what is no line: it is for people who want to know what happened
// lately, not for evidence. A log that does not exist has no entries.
func Tail(path string, size int64, f func(Entry)) error {
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("read the end of the audit log: %w", err)
	}
	defer file.Close()
	is, err := file.Stat()
	if err != nil {
		return fmt.Errorf("read the end of the audit log: %w", err)
	}
	lines := bufio.NewScanner(io.NewSectionReader(file, max(0, is.Size()-size), size))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if _, _, e, err := parseLine(lines.Bytes()); err == nil { // the first line may be the end of one
			f(e)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the end of the audit log: %w", err)
	}
	return nil
}
