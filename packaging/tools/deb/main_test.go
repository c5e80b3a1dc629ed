package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const list = `# a comment
all dir    0750 root fenced /etc/x
all config 0640 root fenced /etc/x/x.yaml
rpm file   0644 root root   /usr/share/only-rpm
all tree   -    -    -      /usr/share/x
all link   -    -    -      /usr/bin/x
`

// installed is a tree with what the list names, and the list.
func installed(t *testing.T) (root string, entries []entry) {
	t.Helper()
	root = t.TempDir()
	for _, file := range []string{"/etc/x/x.yaml", "/usr/share/x/a/b"} {
		write(t, root+file, "")
	}
	if err := os.Mkdir(root+"/usr/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../lib/x", root+"/usr/bin/x"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "files")
	write(t, file, list)
	entries, err := readList(file)
	if err != nil {
		t.Fatal(err)
	}
	return root, entries
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestContentsAreThoseOfTheList(t *testing.T) {
	root, entries := installed(t)
	all, err := contents(root, entries, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range all {
		got = append(got, c.FileInfo.Mode.String()+" "+c.Type+" "+c.Destination)
	}
	want := "-rwxr-x--- dir /etc/x, -rw-r----- config|noreplace /etc/x/x.yaml, -rwxrwxrwx symlink /usr/bin/x, " +
		"-rwxr-xr-x dir /usr/share/x, -rwxr-xr-x dir /usr/share/x/a, -rw-r--r-- file /usr/share/x/a/b"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s\nis not\n%s", strings.Join(got, ", "), want)
	}
}

// TestListAndTreeMustAgree: nothing is packed that the RPM would not pack, and nothing is left out.
func TestListAndTreeMustAgree(t *testing.T) {
	root, entries := installed(t)
	write(t, root+"/usr/share/only-rpm", "")
	if _, err := contents(root, entries, time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), "not in the list") {
		t.Error(err)
	}
	root, entries = installed(t)
	if err := os.Remove(root + "/usr/bin/x"); err != nil {
		t.Fatal(err)
	}
	if _, err := contents(root, entries, time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Error(err)
	}
	for _, line := range []string{"all file 0644 root root", "all file 0999 root root /x", "all thing 0644 root root /x", "some file 0644 root root /x"} {
		file := filepath.Join(t.TempDir(), "files")
		write(t, file, line+"\n")
		if _, err := readList(file); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
}

func TestOwnersAreGivenByTheScript(t *testing.T) {
	_, entries := installed(t)
	script := filepath.Join(t.TempDir(), "postinst")
	write(t, script, "before\n@OWNERS@\nafter\n")
	out, err := withOwners(t.TempDir(), script, entries)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want := "before\n[ ! -e /etc/x ] || chown -h root:fenced /etc/x\n[ ! -e /etc/x/x.yaml ] || chown -h root:fenced /etc/x/x.yaml\nafter\n"
	if string(text) != want {
		t.Errorf("%s", text)
	}
}
