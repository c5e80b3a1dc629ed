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
)

const docDir = "usr/share/doc/fenced"

// TestLinkedDocumentsAreInThePackage: a host with the package alone has every page that its
// pages, man pages, examples and units lead to.
func TestLinkedDocumentsAreInThePackage(t *testing.T) {
	root := rpmRoot(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	path := regexp.MustCompile(`/usr/share/doc/fenced/[\w./-]*[\w/]`)
	followed := 0
	for _, dir := range []string{docDir, "usr/share/man", "usr/lib/systemd", "etc/fenced"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(file string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for _, p := range path.FindAllString(string(text), -1) {
				followed++
				_, err := os.Stat(filepath.Join(root, p))
				assert.NoError(t, err, "%s names it", file)
			}
			if !strings.HasSuffix(file, ".md") {
				return nil
			}
			for _, m := range link.FindAllStringSubmatch(string(text), -1) {
				target, _, _ := strings.Cut(m[1], "#")
				if target == "" || strings.Contains(target, "://") {
					continue
				}
				followed++
				_, err := os.Stat(filepath.Join(filepath.Dir(file), target))
				assert.NoError(t, err, "%s links to it", file)
			}
			return nil
		}))
	}
	require.Greater(t, followed, 100, "the links were not found")
}

// TestPackageListsWhatIsInIt: the bill of materials has each module that Go says is in the
// shipped programs, with its version, and nothing else.
func TestPackageListsWhatIsInIt(t *testing.T) {
	root := rpmRoot(t)
	var bom struct {
		BOMFormat  string
		Components []struct{ Type, Name, Version, PURL string }
	}
	text, err := os.ReadFile(filepath.Join(root, docDir, "sbom.cdx.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &bom))
	require.Equal(t, "CycloneDX", bom.BOMFormat)
	listed := map[string]bool{}
	for _, c := range bom.Components {
		if c.Type == "library" && c.Name != "std" {
			require.Equal(t, "pkg:golang/"+c.Name+"@"+c.Version, c.PURL)
			listed[c.PURL] = true
		}
	}
	built := map[string]bool{}
	for _, program := range []string{"usr/libexec/fenced/fenced", "usr/libexec/fenced/fenced-login", "usr/bin/fencectl"} {
		out, err := exec.Command("go", "version", "-m", "-json", filepath.Join(root, program)).Output()
		require.NoError(t, err)
		var info struct {
			Deps []struct{ Path, Version string }
		}
		require.NoError(t, json.Unmarshal(out, &info))
		require.NotEmpty(t, info.Deps)
		for _, m := range info.Deps {
			built["pkg:golang/"+m.Path+"@"+m.Version] = true
		}
	}
	require.Equal(t, built, listed)
}

// TestRPMLint: what rpmlint says of the package and of the source, but for what the committed filter explains.
func TestRPMLint(t *testing.T) {
	rpm := rpmFile(t)
	need(t, "rpmlint", "rpmlint")
	source, err := filepath.Glob(filepath.Join(filepath.Dir(rpm), "fenced-*.src.rpm"))
	require.NoError(t, err)
	if os.Getenv("FENCED_RPM") == "" {
		require.Len(t, source, 1)
	}
	text, err := exec.Command("rpmlint", append([]string{"--config", "rpm/rpmlint.toml", "rpm/fenced.spec", rpm}, source...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), "0 errors, 0 warnings")
}

// TestManPagesAreUnderstood: man shows nothing of what it does not understand.
func TestManPagesAreUnderstood(t *testing.T) {
	need(t, "mandoc", "mandoc")
	pages, err := filepath.Glob("../docs/man/*.[58]")
	require.NoError(t, err)
	require.Len(t, pages, 4)
	text, err := exec.Command("mandoc", append([]string{"-Tlint", "-Wwarning"}, pages...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Empty(t, string(text))
}

// TestRPMIsSigned signs a copy with a throw-away key: where signatures are required, rpm takes
// it, and neither the unsigned one nor one with another byte.
func TestRPMIsSigned(t *testing.T) {
	built := rpmFile(t)
	need(t, "gpg", "gnupg")
	need(t, "rpmsign", "rpm")
	dir := t.TempDir()
	t.Setenv("GNUPGHOME", filepath.Join(dir, "gnupg"))
	signed := filepath.Join(dir, "signed.rpm")
	sh(t, `mkdir -m 0700 "$GNUPGHOME" "$1/keys" && cp "$2" "$1/signed.rpm" && cp "$2" "$1/plain.rpm"
		gpg --batch --quiet --passphrase "" --quick-generate-key "Test <test@fenced.invalid>" rsa2048 sign never
		gpg --batch --export --armor test@fenced.invalid >"$1/key" && rpm --dbpath "$1/keys" --import "$1/key"
		rpm/sign.sh test@fenced.invalid "$1/signed.rpm"`, dir, built)
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--kill", "gpg-agent").Run() }) // it would outlive the test
	verify := func(file string) (string, error) {
		text, err := exec.Command("rpm", "--dbpath", filepath.Join(dir, "keys"), "-D", "_pkgverify_level all", "-Kv", file).CombinedOutput()
		return string(text), err
	}
	text, err := verify(signed)
	require.NoError(t, err, text)
	require.Regexp(t, `Header V4 RSA/SHA\d+ Signature, key ID \w+: OK`, text)
	text, err = verify(filepath.Join(dir, "plain.rpm"))
	require.Error(t, err, text)
	require.Contains(t, text, "Header RSA signature: NOTFOUND")

	sh(t, `printf x | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") - 100)) conv=notrunc status=none`, signed)
	text, err = verify(signed)
	require.Error(t, err, text)

	text2, err := exec.Command("rpm/sign.sh", "nobody@fenced.invalid", filepath.Join(dir, "plain.rpm")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text2), "gpg has no secret key 'nobody@fenced.invalid'")
}
