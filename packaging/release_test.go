package packaging_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

// project is a copy of what says who releases, with other addresses.
func project(t *testing.T, addresses string) string {
	t.Helper()
	dir := t.TempDir()
	sh(t, `cp project.sh "$1" && printf 'version: 1.2.3\ndate: 2026-01-02\n%s' "$2" >"$1/project"`, dir, addresses)
	return filepath.Join(dir, "project.sh")
}

// TestPlaceholdersAreNotReleased: nobody can write to them.
func TestPlaceholdersAreNotReleased(t *testing.T) {
	const real, placeholder = "maintainer: Somebody <somebody@example.com>\n", "security: security@fenced.invalid\n"
	text, err := exec.Command(project(t, real+placeholder), "check").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), "security@fenced.invalid")
	output(t, project(t, real+"security: security@example.com\n"), "check")
	require.Equal(t, "1.2.3\n", output(t, project(t, real), "version"))
	_, err = exec.Command(project(t, real), "security").Output()
	require.Error(t, err, "a value that is not there")

	if exec.Command("./project.sh", "check").Run() == nil {
		return // a project that has real addresses
	}
	out := filepath.Join(t.TempDir(), "release")
	release := exec.Command("./release.sh", out)
	release.Env = append(os.Environ(), "RELEASE_TRIAL=", "RELEASE_KEY=")
	text, err = release.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), "these are placeholders")
	require.NoDirExists(t, out)
}

// TestOneFileSaysWhoReleases: what people read has no other address, and no other file has one.
func TestOneFileSaysWhoReleases(t *testing.T) {
	address := regexp.QuoteMeta(output(t, "./project.sh", "security"))
	require.Regexp(t, `(?m)Write to `+address[:len(address)-1]+`, in private`, readFile(t, "../SECURITY.md"))
	found := must.Do(exec.Command("grep", "-rlE", `(maintainers|security)@`, "--include=*", "--exclude=*_test.go", "--exclude=*.sum", ".").Output())(t)
	require.Equal(t, []string{"./project"}, lines(string(found)))
}

// projectVersion is the version that a release has.
func projectVersion(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(output(t, "./project.sh", "version"))
}

// TestOneFileSaysWhereTheProjectIs: every link into the project's own pages begins with its url, wherever that is, and move writes all of them.
func TestOneFileSaysWhereTheProjectIs(t *testing.T) {
	need(t, "git", "git")
	root, url := t.TempDir(), strings.TrimSpace(output(t, "./project.sh", "url"))
	const moved = "https://git.example.com/power/off"
	sh(t, `cd .. && git -c safe.directory="$PWD" ls-files -z | while IFS= read -r -d '' f; do [ ! -f "$f" ] || printf '%s\0' "$f"; done | tar --null -T - -cf - | tar -xf - -C "$1"
		cd "$1" && git init --quiet && git add . && packaging/project.sh move "$2"`, root, moved)
	link := regexp.MustCompile(`(https://[\w./-]+?)(?:/blob/main/|/tree/main/|/releases\))|(?m)^(?:URL:|homepage:| +- |# runbooks:) *(https://github\.com/\S*|` + regexp.QuoteMeta(moved) + `\S*)`)
	found := map[string]int{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/.git/") {
			return err
		}
		text := readFile(t, path)
		assert.NotContains(t, text, url, path)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			assert.True(t, strings.HasPrefix(m[1]+m[2], moved), "%s links to %s", path, m[0])
			found[filepath.Base(path)]++
		}
		return nil
	}))
	for _, file := range []string{"README.md", "install.md", "fenced.rules.yaml", "Chart.yaml", "fenced.spec", "nfpm.yaml", "main.go"} {
		assert.NotZero(t, found[file], file)
	}
	sh(t, `cd "$1" && sed -i s/fenced.invalid/example.com/ packaging/project && packaging/project.sh check`, root)
}

// stamped are the files that name the version, and how often.
var stamped = map[string]int{
	"configs/chart/Chart.yaml": 2, "configs/kustomize/daemon/daemon.yaml": 1, "docs/install.md": 1, "packaging/image/fenced.container": 2, "packaging/image/ironic-sidecar.yaml": 1,
}

// TestOneFileSaysTheVersion: the files that name it have it from packaging/project, and a package has its own there.
func TestOneFileSaysTheVersion(t *testing.T) {
	root := t.TempDir()
	stamp := func(version string) map[string]string {
		for file := range stamped {
			sh(t, `mkdir -p "$(dirname "$2/$1")" && cp "../$1" "$2/$1"`, file, root)
		}
		output(t, "./stamp.sh", version, root)
		texts := map[string]string{}
		for file := range stamped {
			texts[file] = readFile(t, filepath.Join(root, file))
		}
		return texts
	}
	for file, text := range stamp(projectVersion(t)) {
		assert.Equal(t, readFile(t, "../"+file), text, "%s; make golden writes it", file)
	}
	for file, text := range stamp("7.8.9~rc1") {
		assert.Equal(t, stamped[file], strings.Count(text, "7.8.9-rc1"), file)
		assert.NotContains(t, text, "fenced:"+projectVersion(t), file)
	}
}

// TestReleaseIsSigned: the key signs each RPM and the list of sums; the list and the provenance are of the signed files, and another byte
// is noticed.
func TestReleaseIsSigned(t *testing.T) {
	built := rpmFile(t)
	need(t, "gpg", "gnupg")
	need(t, "rpmsign", "rpm")
	dir := t.TempDir()
	makeKey(t, dir)
	const commit = "0123456789abcdef0123456789abcdef01234567"
	sh(t, `mkdir "$1/release" && cp "$2" "$1/release/fenced.rpm" && echo some >"$1/release/fenced.deb" && ./seal.sh "$1/release" 1.2.3 "$3" test@fenced.invalid`, dir, built, commit)
	release := filepath.Join(dir, "release")
	checked := func() error {
		return exec.Command("sh", "-ec", `cd "$1/release" && gpg --verify SHA256SUMS.asc SHA256SUMS && sha256sum --strict -c SHA256SUMS && rpm --dbpath "$1/keys" -D "_pkgverify_level all" -K fenced.rpm`,
			"sh", dir).Run()
	}
	require.NoError(t, checked())
	names, statement := provenance(t, release)
	require.ElementsMatch(t, []string{"fenced.rpm", "fenced.deb"}, names)
	require.Contains(t, statement, commit)
	require.NotEqual(t, sum(t, built), sum(t, filepath.Join(release, "fenced.rpm")))
	for _, file := range []string{"fenced.deb", "provenance.intoto.json", "SHA256SUMS"} {
		sh(t, `cp "$1" "$1.was" && echo >>"$1"`, filepath.Join(release, file))
		require.Error(t, checked(), file)
		sh(t, `mv "$1.was" "$1"`, filepath.Join(release, file))
	}
	require.NoError(t, checked())
}

// provenance returns the names in the provenance of a release, whose sums are those of the files, and its text.
func provenance(t *testing.T, release string) (names []string, text string) {
	t.Helper()
	text = readFile(t, filepath.Join(release, "provenance.intoto.json"))
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &statement))
	for _, s := range statement.Subject {
		names = append(names, s.Name)
		assert.Equal(t, sum(t, filepath.Join(release, s.Name)), s.Digest["sha256"], s.Name)
	}
	return names, text
}

// TestReleaseTwice makes all files of a release, as they are published: of a commit with a tag, compressed, and signed with a throw-away key. What
// a user has checks the signatures. Made once more without a key, in other surroundings, the bytes are the same but for the signatures.
func TestReleaseTwice(t *testing.T) {
	dice.OnlyInSoak(t) // it costs the packages of both architectures, twice
	for tool, pkg := range map[string]string{"rpmbuild": "rpm", "rpmsign": "rpm", "gpg": "gnupg", "skopeo": "skopeo"} {
		need(t, tool, pkg)
	}
	dir := t.TempDir()
	makeKey(t, dir)
	copied := filepath.Join(dir, "source")
	sh(t, `umask 022; git -c safe.directory='*' clone --quiet --no-hardlinks .. "$1"; cd "$1"; git config user.name a; git config user.email a@example.com
		packaging/project.sh move https://git.example.com/fenced; sed -i s/fenced.invalid/example.com/ packaging/project SECURITY.md
		git commit --quiet --all --message "real addresses" && git tag "v$(packaging/project.sh version)"`, copied)
	make := func(name string, env ...string) string {
		out := filepath.Join(dir, name)
		release := exec.Command(filepath.Join(copied, "packaging/release.sh"), out)
		release.Env = append(os.Environ(), env...)
		text, err := release.CombinedOutput()
		require.NoError(t, err, "%s", text)
		return out
	}
	first := make("first", "RELEASE_KEY=test@fenced.invalid")
	sh(t, `cd "$1/first" && gpg --verify SHA256SUMS.asc SHA256SUMS && sha256sum --strict --quiet -c SHA256SUMS
		for rpm in *.rpm; do rpm --dbpath "$1/keys" -D "_pkgverify_level all" -K "$rpm" || exit; done`, dir)
	second := make("second", "RELEASE_TRIAL=1", "RELEASE_KEY=", "TZ=Asia/Kathmandu", "LC_ALL=C.UTF-8")
	output(t, "diff", "-r", "--exclude=*.rpm", "--exclude=SHA256SUMS*", "--exclude=provenance.intoto.json", first, second)
	const built = `cd "$1" && rpm -qp --nosignature --qf '%{NEVRA} %{ARCH} %{SHA256HEADER}\n' *.rpm`
	require.Equal(t, output(t, "sh", "-c", built, "sh", first), output(t, "sh", "-c", built, "sh", second), "the header has the sum of the files")

	names, _ := provenance(t, first)
	name := "fenced-" + projectVersion(t)
	deb := strings.Replace(name, "-", "_", 1)
	assert.ElementsMatch(t, []string{
		name + "-1.aarch64.rpm", name + "-1.src.rpm", name + "-1.x86_64.rpm", deb + "_amd64.deb", deb + "_arm64.deb",
		name + ".tgz", name + "-image.oci.tar", name + "-linux-amd64.tar.gz", name + "-linux-arm64.tar.gz", name + "-amd64.cdx.json", name + "-arm64.cdx.json",
	}, names)

	// The tarball installs.
	sh(t, `cd "$1" && mkdir tar root && tar -xzf "first/$2-linux-amd64.tar.gz" -C tar && "tar/$2-linux-amd64/packaging/install.sh" "$1/root" /usr`, dir, name)
	assert.Equal(t, "fenced "+projectVersion(t)+"\n", output(t, filepath.Join(dir, "root/usr/bin/fenced"), "--version"))

	for _, arch := range []string{"amd64", "arm64"} {
		requireImage(t, filepath.Join(copied, "packaging"), "oci-archive:"+filepath.Join(first, name+"-image.oci.tar")+":"+projectVersion(t), arch)
	}
	// Helm takes the chart as a file, and renders what it renders of the directory.
	helm := filepath.Join(must.Do(rig.Helm(t.Context(), os.Stderr))(t), "helm")
	assert.Equal(t, output(t, helm, "template", "fenced", "../configs/chart"), output(t, helm, "template", "fenced", filepath.Join(first, name+".tgz")))
}
