package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Files returns the existing files of the log at path, oldest first: the rotated
// files, and the one being written.
func Files(path string) ([]string, error) {
	old, err := filepath.Glob(escaped(path) + ".[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list the files of the audit log: %w", err)
	}
	slices.Sort(old) // the numbers have leading zeros
	return append(old, path), nil
}

// Walk verifies all files of the log at path, and that each follows the one
// before it, and calls f with every good line.
func Walk(path string, f func(Line) error) (Span, error) {
	files, err := Files(path)
	if err != nil {
		return Span{}, err
	}
	var whole Span
	for i, name := range files {
		s, err := walkFile(name, f)
		if i == 0 {
			whole.Before = s.Before
		}
		if s.Whole > 0 || i == 0 {
			if i > 0 && s.Before != whole.Head {
				return whole, &Broken{File: name, Seq: whole.Head.Seq, What: fmt.Sprintf("it follows entry %d, but the file before it does not end there", s.Before.Seq)}
			}
			whole.Head = s.Head
		}
		whole.Whole, whole.Torn = whole.Whole+s.Whole, s.Torn
		if broken, ok := errors.AsType[*Broken](err); ok {
			broken.File = name
		}
		if err != nil {
			return whole, err
		}
		if s.Torn > 0 && i < len(files)-1 {
			return whole, &Broken{File: name, Seq: whole.Head.Seq, What: "its last line is cut, and more files follow"}
		}
	}
	return whole, nil
}

func walkFile(name string, f func(Line) error) (Span, error) {
	file, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return Span{}, fmt.Errorf("open the audit log: %w", err)
	}
	s, err := Read(file, f)
	return s, errors.Join(err, file.Close())
}

// Verify verifies the log at path, and that it contains every exported head, and
// the head that the daemon saved next to it. An exported head just before its
// first entry accounts for files that were removed on purpose. // I24
func Verify(path string, exported ...Head) (Span, error) {
	remembered, err := loadHead(path) // before the log, which is never behind it
	if err != nil {
		return Span{}, fmt.Errorf("read the saved head of the audit log: %w", err)
	}
	heads := slices.Clone(exported)
	if (remembered != Head{}) {
		heads = append(heads, remembered)
	}
	s, err := verify(path, heads)
	if err != nil {
		return s, err
	}
	s.Remembered = remembered
	// The saved head does not account for files that were removed.
	if (s.Before != Head{}) && !slices.Contains(exported, s.Before) {
		return s, &Broken{What: fmt.Sprintf("it starts with entry %d; if older files were removed on purpose, verify those, too, and give their last head", s.Before.Seq+1)}
	}
	return s, nil
}

// verify verifies a log and that it contains each of the heads.
func verify(path string, heads []Head) (Span, error) {
	wanted := map[uint64][]Head{}
	for _, h := range heads {
		wanted[h.Seq] = append(wanted[h.Seq], h)
	}
	s, err := Walk(path, func(l Line) error {
		return headMismatch(wanted[l.Head.Seq], l.Head)
	})
	if err != nil {
		return s, err
	}
	for _, h := range heads {
		switch {
		case h.Seq > s.Head.Seq:
			return s, &Broken{Seq: s.Head.Seq, What: fmt.Sprintf("it ends there, but entry %d was exported: its end is missing", h.Seq)}
		case h.Seq == s.Before.Seq && h != s.Before:
			return s, headMismatch([]Head{h}, s.Before)
		}
	}
	if s.Head.Seq == 0 {
		return s, &Broken{What: "it holds no entry, and a log begins with one"}
	}
	return s, nil
}

// headMismatch returns the error of a position that differs from an exported one.
func headMismatch(exported []Head, is Head) error {
	for _, h := range exported {
		if h != is {
			return &Broken{Seq: is.Seq - min(is.Seq, 1), What: fmt.Sprintf("entry %d is not the one that was exported: the log was rebuilt", is.Seq)}
		}
	}
	return nil
}

// escaped makes Glob match a path literally.
func escaped(path string) string {
	var b []byte
	for i := range len(path) {
		if c := path[i]; c == '*' || c == '?' || c == '[' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}
