package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Files are the files of the log at path that are still there, oldest first: those
// that were put aside, and the one that is written.
func Files(path string) ([]string, error) {
	old, err := filepath.Glob(escaped(path) + ".[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list the files of the audit log: %w", err)
	}
	slices.Sort(old) // their numbers have leading zeros
	return append(old, path), nil
}

// Walk proves all files of the log at path and that each follows the one before
// it, and gives every good line to f.
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
				return whole, &Broken{File: name, Seq: whole.Head.Seq, What: fmt.Sprintf("it follows entry %d of a log that does not end there", s.Before.Seq)}
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

// Verify proves the log at path, and that it holds every head that was exported, and
// the one that the daemon remembered beside it. An exported head just before its first
// entry vouches for a beginning that was taken away. // I24
func Verify(path string, exported ...Head) (Span, error) {
	remembered, err := loadHead(path) // before the log, which never lags behind it
	if err != nil {
		return Span{}, fmt.Errorf("read the remembered head of the audit log: %w", err)
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
	// What lies beside the log does not vouch for what was taken away from it.
	if (s.Before != Head{}) && !slices.Contains(exported, s.Before) {
		return s, &Broken{What: fmt.Sprintf("it begins with entry %d; if what was before it was taken away on purpose, verify that, too, and give its head", s.Before.Seq+1)}
	}
	return s, nil
}

// verify proves a log and that it holds each of the heads.
func verify(path string, heads []Head) (Span, error) {
	wanted := map[uint64][]Head{}
	for _, h := range heads {
		wanted[h.Seq] = append(wanted[h.Seq], h)
	}
	s, err := Walk(path, func(l Line) error {
		return differs(wanted[l.Head.Seq], l.Head)
	})
	if err != nil {
		return s, err
	}
	for _, h := range heads {
		switch {
		case h.Seq > s.Head.Seq:
			return s, &Broken{Seq: s.Head.Seq, What: fmt.Sprintf("it ends there, and entry %d was exported: its end is missing", h.Seq)}
		case h.Seq == s.Before.Seq && h != s.Before:
			return s, differs([]Head{h}, s.Before)
		}
	}
	if s.Head.Seq == 0 {
		return s, &Broken{What: "it holds no entry, and a log begins with one"}
	}
	return s, nil
}

// differs is the error of a place that is not the one that was exported.
func differs(exported []Head, is Head) error {
	for _, h := range exported {
		if h != is {
			return &Broken{Seq: is.Seq - min(is.Seq, 1), What: fmt.Sprintf("entry %d is not the one that was exported: the log was made anew", is.Seq)}
		}
	}
	return nil
}

// escaped keeps Glob from reading a path as a pattern.
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
