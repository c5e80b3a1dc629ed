package packaging_test

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
)

// packaged is every path of the RPM but the pages of docs, the chart and the kustomize bases: mode, owner, group, flags (c config, n
// noreplace, d documentation, l licence). /usr/bin/fenced is a link and
// /usr/sbin/fenced does not exist: the SELinux policy of RHEL and Fedora gives
// regular files of these names to another program.
const packaged = `
drwxr-x--- root fenced - /etc/fenced
drwxr-x--- root fenced - /etc/fenced/conf.d
drwxr-x--- root fenced - /etc/fenced/credentials
-rw-r----- root fenced cn /etc/fenced/fenced.yaml
drwxr-x--- root fenced - /etc/fenced/hosts.d
drwxr-x--- root fenced - /etc/fenced/policies.d
-rwxr-xr-x root root - /usr/bin/fencectl
lrwxrwxrwx root root - /usr/bin/fenced
-rw-r--r-- root root - /usr/lib/systemd/system-preset/90-fenced.preset
-rw-r--r-- root root - /usr/lib/systemd/system/fenced-login.service
-rw-r--r-- root root - /usr/lib/systemd/system/fenced-login.socket
-rw-r--r-- root root - /usr/lib/systemd/system/fenced-pause.service
-rw-r--r-- root root - /usr/lib/systemd/system/fenced-resume.service
-rw-r--r-- root root - /usr/lib/systemd/system/fenced.service
-rw-r--r-- root root - /usr/lib/systemd/system/fenced.socket
-rw-r--r-- root root - /usr/lib/sysusers.d/fenced.conf
-rw-r--r-- root root - /usr/lib/tmpfiles.d/fenced.conf
drwxr-xr-x root root - /usr/libexec/fenced
-rwxr-xr-x root root - /usr/libexec/fenced/fenced
-rwxr-xr-x root root - /usr/libexec/fenced/fenced-login
-rw-r--r-- root root - /usr/share/bash-completion/completions/fencectl
drwxr-xr-x root root - /usr/share/doc/fenced
-rw-r--r-- root root d /usr/share/doc/fenced/CHANGELOG.md
-rw-r--r-- root root d /usr/share/doc/fenced/CONTRIBUTING.md
lrwxrwxrwx root root d /usr/share/doc/fenced/LICENSE
-rw-r--r-- root root d /usr/share/doc/fenced/README.md
-rw-r--r-- root root d /usr/share/doc/fenced/SECURITY.md
lrwxrwxrwx root root d /usr/share/doc/fenced/configs
drwxr-xr-x root root - /usr/share/doc/fenced/docs
drwxr-xr-x root root - /usr/share/doc/fenced/docs/adr
drwxr-xr-x root root - /usr/share/doc/fenced/docs/quickstart
drwxr-xr-x root root - /usr/share/doc/fenced/docs/systems
drwxr-xr-x root root - /usr/share/fenced
drwxr-xr-x root root - /usr/share/fenced/crds
-rw-r--r-- root root - /usr/share/fenced/crds/fenced.io_fencedremediations.yaml
-rw-r--r-- root root - /usr/share/fenced/crds/fenced.io_fencedremediationtemplates.yaml
-rw-r--r-- root root - /usr/share/fenced/crds/rbac.yaml
-rw-r--r-- root root - /usr/share/fenced/fenced-policy.schema.json
-rw-r--r-- root root - /usr/share/fenced/fenced.yaml
drwxr-xr-x root root - /usr/share/fenced/grafana
-rw-r--r-- root root - /usr/share/fenced/grafana/fenced.json
drwxr-xr-x root root - /usr/share/fenced/hosts.d
-rw-r--r-- root root - /usr/share/fenced/hosts.d/example.yaml
drwxr-xr-x root root - /usr/share/fenced/kubernetes
-rw-r--r-- root root - /usr/share/fenced/kubernetes/evaluate.yaml
-rw-r--r-- root root - /usr/share/fenced/kubernetes/observe.yaml
-rw-r--r-- root root - /usr/share/fenced/kubernetes/protect-nodes.yaml
-rw-r--r-- root root - /usr/share/fenced/kubernetes/release-pods.yaml
-rw-r--r-- root root - /usr/share/fenced/kubernetes/respond.yaml
-rw-r--r-- root root - /usr/share/fenced/kubernetes/templates.yaml
drwxr-xr-x root root - /usr/share/fenced/local-ipmi
-rw-r--r-- root root - /usr/share/fenced/local-ipmi/60-fenced-ipmi.rules
-rw-r--r-- root root - /usr/share/fenced/local-ipmi/fenced-local-ipmi.conf
drwxr-xr-x root root - /usr/share/fenced/policies.d
-rw-r--r-- root root - /usr/share/fenced/policies.d/example.yaml
-rw-r--r-- root root - /usr/share/fenced/policies.d/fencepolicy.yaml
drwxr-xr-x root root - /usr/share/fenced/prometheus
-rw-r--r-- root root - /usr/share/fenced/prometheus/fenced.rules.yaml
-rw-r--r-- root root - /usr/share/fenced/rbac-medik8s.yaml
-rw-r--r-- root root - /usr/share/fenced/rbac.yaml
drwxr-xr-x root root - /usr/share/fenced/samples
-rw-r--r-- root root - /usr/share/fenced/samples/cluster-api.yaml
-rw-r--r-- root root - /usr/share/fenced/samples/fencepolicy.yaml
-rw-r--r-- root root - /usr/share/fenced/samples/medik8s.yaml
-rw-r--r-- root root - /usr/share/fenced/samples/openshift.yaml
-rw-r--r-- root root - /usr/share/fenced/sbom.cdx.json
drwxr-xr-x root root - /usr/share/fenced/systemd
-rw-r--r-- root root - /usr/share/fenced/systemd/fenced-credentials.conf
-rw-r--r-- root root - /usr/share/fenced/systemd/fenced-mail.service
-rw-r--r-- root root - /usr/share/fenced/systemd/fenced-mail.sh
-rw-r--r-- root root - /usr/share/fenced/systemd/fenced-networks.conf
-rw-r--r-- root root - /usr/share/fenced/systemd/fenced-webhook.service
-rw-r--r-- root root - /usr/share/fenced/systemd/fenced-webhook.sh
-rw-r--r-- root root - /usr/share/fish/vendor_completions.d/fencectl.fish
drwxr-xr-x root root - /usr/share/licenses/fenced
-rw-r--r-- root root l /usr/share/licenses/fenced/LICENSE
-rw-r--r-- root root l /usr/share/licenses/fenced/THIRD_PARTY_NOTICES
-rw-r--r-- root root d /usr/share/man/man5/fenced-policy.5.gz
-rw-r--r-- root root d /usr/share/man/man5/fenced.yaml.5.gz
-rw-r--r-- root root d /usr/share/man/man8/fencectl.8.gz
-rw-r--r-- root root d /usr/share/man/man8/fenced.8.gz
-rw-r--r-- root root - /usr/share/zsh/site-functions/_fencectl
drwx------ fenced fenced - /var/lib/fenced
`

func TestRPMHoldsExactlyTheseFiles(t *testing.T) {
	got := output(t, "rpm", "-qp", "--qf", `[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME} -%{FILEFLAGS:fflags} %{FILENAMES}\n]`, rpmFile(t))
	got = regexp.MustCompile(` -([a-z]+) `).ReplaceAllString(got, " $1 ")
	var pages, others []string
	for _, line := range lines(got) {
		if page, ok := strings.CutPrefix(line, pageLine); ok {
			pages = append(pages, "../docs/"+page)
		} else {
			others = append(others, line)
		}
	}
	require.ElementsMatch(t, packagedFiles(t), others)
	require.ElementsMatch(t, docPages(t), pages)
}

// packagedFiles are the lines of packaged, and those of the chart and the kustomize bases: all of configs there is shipped.
func packagedFiles(t *testing.T) []string {
	t.Helper()
	all := lines(packaged)
	for _, tree := range []string{"chart", "kustomize"} {
		require.NoError(t, filepath.WalkDir("../configs/"+tree, func(path string, d os.DirEntry, err error) error {
			mode := "-rw-r--r--"
			if err == nil && d.IsDir() {
				mode = "drwxr-xr-x"
			}
			all = append(all, mode+" root root - /"+shareDir+strings.TrimPrefix(path, "../configs"))
			return err
		}))
	}
	return all
}

// pageLine begins the line of a page of docs.
const pageLine = "-rw-r--r-- root root d /usr/share/doc/fenced/docs/"

// docPages are the pages of docs and their pictures, by path from here: all of them are shipped.
func docPages(t *testing.T) []string {
	t.Helper()
	all := append(must.Do(filepath.Glob("../docs/*.svg"))(t), must.Do(filepath.Glob("../docs/*.png"))(t)...)
	for _, folder := range []string{".", "adr", "systems", "quickstart"} {
		pages := must.Do(filepath.Glob(filepath.Join("../docs", folder, "*.md")))(t)
		require.NotEmpty(t, pages, folder)
		all = append(all, pages...)
	}
	return all
}

// TestRPMNeedsNoDriver: what a few hosts' drivers run is offered, never
// installed with the daemon against the administrator's will.
func TestRPMNeedsNoDriver(t *testing.T) {
	rpm := rpmFile(t)
	require.Equal(t, "ipmitool\ntzdata\n", output(t, "rpm", "-qp", "--recommends", rpm))
	require.Equal(t, "fence-agents-all\n", output(t, "rpm", "-qp", "--suggests", rpm))
	requires := output(t, "rpm", "-qp", "--requires", rpm)
	require.NotRegexp(t, "ipmitool|fence-agents", requires)
	require.Regexp(t, `(?m)^systemd >= 252$`, requires, "as the Debian package")
}

func TestRPMScriptlets(t *testing.T) {
	rpm := rpmFile(t)
	scripts := map[string][]string{ // what each must do; see the spec for why
		"PREIN":  {"systemd-sysusers", "useradd -r"},
		"POSTIN": {"--no-reload preset fenced.service fenced.socket", "daemon-reload"},
		"PREUN":  {"disable --now fenced.socket fenced.service", "stop fenced-login.socket fenced-login.service"},
		"POSTUN": {"try-restart fenced.service"},
	}
	for tag, wants := range scripts {
		script := output(t, "rpm", "-qp", "--qf", "%{"+tag+"}", rpm)
		for _, want := range wants {
			require.Contains(t, script, want, tag)
		}
		require.NotRegexp(t, `systemctl (--now )?(enable|start|restart)`, script, "%s starts what no administrator started", tag)
		file := filepath.Join(t.TempDir(), tag)
		require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
		output(t, "sh", "-n", file)
	}
}

// hasTheRevision: fenced_build_info of this daemon says of which commit it is. Somebody may commit while the tests run.
func hasTheRevision(t *testing.T, daemon string) {
	t.Helper()
	program := must.Do(os.ReadFile(daemon))(t)
	has := func(revision string) bool {
		commit, _, _ := strings.Cut(strings.TrimSpace(revision), "-")
		return commit != "" && bytes.Contains(program, []byte(commit))
	}
	now := output(t, "./revision.sh")
	require.True(t, has(revisionBefore) || has(now), "%s has neither the revision %s nor %s", daemon, revisionBefore, now)
}

func TestPackagedProgramsRun(t *testing.T) {
	root := rpmRoot(t)
	daemon := filepath.Join(root, "usr/libexec/fenced/fenced")
	require.Equal(t, "fenced "+versions().this+"\n", output(t, daemon, "--version"))
	hasTheRevision(t, daemon)
	require.Contains(t, output(t, filepath.Join(root, "usr/bin/fencectl"), "version"), versions().this)
	link := must.Do(os.Readlink(filepath.Join(root, "usr/bin/fenced")))(t)
	require.Equal(t, "../libexec/fenced/fenced", link)
	bash := filepath.Join(root, "usr/share/bash-completion/completions/fencectl")
	output(t, "bash", "-n", bash)
	data := must.Do(os.ReadFile(bash))(t)
	require.Contains(t, string(data), "complete -o default")
}

// maxDaemon is what the daemon may weigh, in bytes. With the types of all API groups of Kubernetes it weighs 43 MB, without the build tag grpcnotrace
// still more; docs/performance.md says what it consists of.
const maxDaemon = 31 << 20

func TestDaemonIsNoLargerThanItsParts(t *testing.T) {
	info := must.Do(os.Stat(filepath.Join(rpmRoot(t), "usr/libexec/fenced/fenced")))(t)
	require.Less(t, info.Size(), int64(maxDaemon))
}

// TestSourceRPMIsRebuilt: whoever has the source RPM alone gets the same files out of it, without a network and without modules of Go
// but those in it. The version is not the one that the spec of this tree says.
func TestSourceRPMIsRebuilt(t *testing.T) {
	dice.OnlyInSoak(t) // it costs another build
	asroot.Need(t, "take the network away")
	need(t, "unshare", "util-linux")
	need(t, "rpmbuild", "rpm")
	dist := t.TempDir()
	require.NoError(t, buildRPM(versions().newer, dist))
	source := filepath.Join(dist, "fenced-"+versions().newer+"-1.src.rpm")
	top := t.TempDir()
	sh(t, `GOMODCACHE=$2/modules unshare --net rpmbuild --quiet --define "_topdir $2" --define "_binary_payload $3" --rebuild "$1"`, source, top, payload)
	rebuilt := must.Do(filepath.Glob(filepath.Join(top, "RPMS/*/*.rpm")))(t)
	require.Len(t, rebuilt, 1)
	// Not the whole of it: rpmbuild notes in a binary RPM the source RPM that it has built beside.
	what := func(rpm string) string {
		return output(t, "rpm", "-qp", "--scripts", "--requires", "--provides", "--qf", `%{NEVRA} [%{PAYLOADDIGEST}]\n`, rpm)
	}
	require.Equal(t, what(filepath.Join(dist, filepath.Base(rebuilt[0]))), what(rebuilt[0]))
}

// TestRPMIsOfItsArchitecture: the programs are of the architecture that the RPM names, also where the builder is of the other one.
func TestRPMIsOfItsArchitecture(t *testing.T) {
	need(t, "rpmspec", "rpm")
	spec := filepath.Join(t.TempDir(), "fenced.spec")
	sh(t, `sed 's/@VERSION@/1.2.3/; s/@DAY@/Fri Nov 20 2026/' rpm/fenced.spec >"$1"`, spec)
	for target, arch := range map[string]string{"x86_64": "amd64", "aarch64": "arm64"} {
		text := output(t, "rpmspec", "--target", target, "-P", spec)
		require.Regexp(t, `(?m)^GOARCH=`+arch+` go build .* -o bin/ \./cmd/\.\.\.$`, text, target)
	}
}

// TestRPMForARM builds for another kind of machine than this one.
func TestRPMForARM(t *testing.T) {
	dice.OnlyInSoak(t) // it costs another build
	built := rpmFile(t)
	t.Setenv("RPM_TARGET", "aarch64")
	dist := filepath.Join(t.TempDir(), "dist")
	require.NoError(t, buildRPM(versions().this, dist))
	arm := must.Do(binaryRPM(dist))(t)
	require.Equal(t, "aarch64", output(t, "rpm", "-qp", "--qf", "%{ARCH}", arm))
	require.Equal(t, output(t, "rpm", "-qpl", built), output(t, "rpm", "-qpl", arm))
	root := t.TempDir()
	sh(t, `rpm2archive -n - <"$1" | tar -xf - -C "$2"`, arm, root)
	for _, program := range []string{"usr/libexec/fenced/fenced", "usr/libexec/fenced/fenced-login", "usr/bin/fencectl"} {
		f := must.Do(elf.Open(filepath.Join(root, program)))(t)
		require.Equal(t, elf.EM_AARCH64, f.Machine, program)
		require.NoError(t, f.Close())
	}
	text := must.Do(os.ReadFile(filepath.Join(root, shareDir, "sbom.cdx.json")))(t)
	require.Regexp(t, `"cdx:gomod:build:env:GOARCH",\s*"value": "arm64"`, string(text))
}

func sh(t *testing.T, script string, args ...string) {
	t.Helper()
	text, err := exec.Command("bash", append([]string{"-c", "umask 077; " + script, "sh"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
}

func sum(t *testing.T, file string) string {
	t.Helper()
	data := must.Do(os.ReadFile(file))(t)
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

const (
	docDir   = "usr/share/doc/fenced"
	shareDir = "usr/share/fenced"
)

// TestLinkedDocumentsAreInThePackage: a host with the package alone has every page that its
// pages, man pages, examples and units lead to.
func TestLinkedDocumentsAreInThePackage(t *testing.T) {
	root := rpmRoot(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	path := regexp.MustCompile(`/usr/share/(doc/)?fenced/[\w./-]*[\w/]`)
	followed := 0
	for _, dir := range []string{docDir, shareDir, "usr/share/man", "usr/lib/systemd", "etc/fenced"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(file string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text, err := exec.Command("zcat", "-f", file).Output()
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

// noticesFile has the licences of what is linked.
const noticesFile = "usr/share/licenses/fenced/THIRD_PARTY_NOTICES"

// TestPackageListsWhatIsInIt: the bill of materials and the License line are of what is linked.
func TestPackageListsWhatIsInIt(t *testing.T) {
	root := rpmRoot(t)
	expression := listsWhatIsInIt(t, root, "usr/libexec/fenced/fenced", "usr/libexec/fenced/fenced-login", "usr/bin/fencectl")
	license := output(t, "rpm", "-qp", "--qf", "%{LICENSE}", rpmFile(t))
	require.Equal(t, license, expression, "the License line of the spec")
	require.Contains(t, readFile(t, filepath.Join(root, noticesFile)), "\nLicense: "+license+"\n")
}

// listsWhatIsInIt: the bill of materials has each module that Go says is in the programs, with its version, and nothing else. It returns all
// their licences.
func listsWhatIsInIt(t *testing.T, root string, programs ...string) string {
	t.Helper()
	var bom struct {
		BOMFormat  string
		Components []struct {
			Type, Name, Version, PURL string
			Licenses                  []struct {
				License    struct{ ID string }
				Expression string
			}
		}
	}
	text := must.Do(os.ReadFile(filepath.Join(root, shareDir, "sbom.cdx.json")))(t)
	require.NoError(t, json.Unmarshal(text, &bom))
	require.Equal(t, "CycloneDX", bom.BOMFormat)
	listed := map[string]bool{}
	expression := []string{"Apache-2.0"} // fenced's own
	for _, c := range bom.Components {
		require.Len(t, c.Licenses, 1, c.Name)
		expression = append(expression, strings.Split(c.Licenses[0].License.ID+c.Licenses[0].Expression, " AND ")...)
		if c.Type == "library" && c.Name != "std" {
			purl := "pkg:golang/" + c.Name + "@" + c.Version
			require.Equal(t, purl+"?goarch="+runtime.GOARCH+"&goos=linux&type=module", c.PURL)
			listed[purl] = true
		}
	}
	built := map[string]bool{}
	for _, program := range programs {
		out := must.Do(exec.Command("go", "version", "-m", "-json", filepath.Join(root, program)).Output())(t)
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
	slices.Sort(expression)
	return strings.Join(slices.Compact(expression), " AND ")
}

// TestNoticesAreCurrent: whoever changes go.mod has the licences of what is linked then in the packages, and has seen new ones.
func TestNoticesAreCurrent(t *testing.T) {
	text, err := exec.Command("tools/run.sh", "notices", "-check", absolute(t, "..")).CombinedOutput()
	require.NoError(t, err, "%s", text)
}

// TestRPMLint: what rpmlint says of the package and of the source, but for what the committed filter explains.
func TestRPMLint(t *testing.T) {
	rpm := rpmFile(t)
	need(t, "rpmlint", "rpmlint")
	source := must.Do(filepath.Glob(filepath.Join(filepath.Dir(rpm), "fenced-*.src.rpm")))(t)
	if os.Getenv("FENCED_RPM") == "" {
		require.Len(t, source, 1)
	}
	text, err := exec.Command("rpmlint", append([]string{"--config", "rpm/rpmlint.toml", rpm}, source...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), "0 errors, 0 warnings")
}

// TestManPagesAreUnderstood: man shows nothing of what it does not understand.
func TestManPagesAreUnderstood(t *testing.T) {
	need(t, "mandoc", "mandoc")
	pages := must.Do(filepath.Glob("../docs/man/*.[58]"))(t)
	require.Len(t, pages, 4)
	text, err := exec.Command("mandoc", append([]string{"-Tlint", "-Wwarning"}, pages...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Empty(t, string(text))
}

// makeKey makes a throw-away key of gpg below dir, which the rpm with the database dir/keys knows.
func makeKey(t *testing.T, dir string) {
	t.Helper()
	t.Setenv("GNUPGHOME", filepath.Join(dir, "gnupg"))
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--kill", "gpg-agent").Run() }) // it would outlive the test
	sh(t, `mkdir -m 0700 "$GNUPGHOME" "$1/keys"
		gpg --batch --quiet --passphrase "" --quick-generate-key "Test <test@fenced.invalid>" rsa2048 sign never
		gpg --batch --export --armor test@fenced.invalid >"$1/key" && rpm --dbpath "$1/keys" --import "$1/key"`, dir)
}

// TestRPMIsSigned signs a copy with a throw-away key: where signatures are required, rpm takes
// it, and neither the unsigned one nor one with another byte.
func TestRPMIsSigned(t *testing.T) {
	built := rpmFile(t)
	need(t, "gpg", "gnupg")
	need(t, "rpmsign", "rpm")
	dir := t.TempDir()
	makeKey(t, dir)
	signed := filepath.Join(dir, "signed.rpm")
	sh(t, `cp "$2" "$1/signed.rpm" && cp "$2" "$1/plain.rpm" && rpm/sign.sh test@fenced.invalid "$1/signed.rpm"`, dir, built)
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

func buildDeb(version, out string, env ...string) (string, error) {
	cmd := exec.Command("deb/build.sh", version, out)
	cmd.Env = append(append(os.Environ(), "DEB_COMPRESS=none", "DEB_TARGET=amd64"), env...)
	text, err := cmd.CombinedOutput()
	return filepath.Join(out, "fenced_"+version+"_amd64.deb"), wrapOutput(err, text)
}

// builtDeb is the Debian package of this tree, built once.
var builtDeb = sync.OnceValues(func() (string, error) { return buildDeb(versions().this, filepath.Join(scratch, "deb")) })

// builtNewDeb is the Debian package of a version after this one, built once.
var builtNewDeb = sync.OnceValues(func() (string, error) {
	bill, err := billOfMaterials()
	if err != nil {
		return "", err
	}
	return buildDeb(versions().newer, filepath.Join(scratch, "deb"), bill)
})

func debFile(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("building a package is not short")
	}
	need(t, "dpkg-deb", "dpkg")
	path := must.Do(builtDeb())(t)
	return path
}

// debOnly is what the Debian package has, and the RPM has not.
const debOnly = `
-rw-r--r-- /usr/share/doc/fenced/changelog.gz
-rw-r--r-- /usr/share/doc/fenced/copyright
-rw-r--r-- /usr/share/lintian/overrides/fenced
-rw-r--r-- /usr/share/zsh/vendor-completions/_fencectl
`

// TestDebHoldsWhatTheRPMHolds: the same files with the same modes. They are root's; postinst gives them to whom the RPM gives them.
func TestDebHoldsWhatTheRPMHolds(t *testing.T) {
	t.Parallel()
	deb := debFile(t)
	var want, chowned []string
	above := map[string]bool{"/": true}
	for _, line := range packagedFiles(t) {
		f := strings.Fields(line)
		if f[4] == "/usr/share/zsh/site-functions/_fencectl" {
			continue
		}
		want = append(want, f[0]+" "+f[4])
		if f[1] != "root" || f[2] != "root" {
			chowned = append(chowned, fmt.Sprintf("[ ! -e %[3]s ] || chown -h %[1]s:%[2]s %[3]s", f[1], f[2], f[4]))
		}
		for dir := filepath.Dir(f[4]); dir != "/"; dir = filepath.Dir(dir) {
			above[dir] = true
		}
	}
	for _, page := range docPages(t) {
		want = append(want, "-rw-r--r-- /usr/share/doc/fenced/"+strings.TrimPrefix(page, "../"))
	}
	want = append(want, lines(debOnly)...)
	above["/usr/share/zsh"], above["/usr/share/zsh/vendor-completions"], above["/usr/share/lintian"], above["/usr/share/lintian/overrides"] = true, true, true, true
	var got []string
	for _, line := range lines(output(t, "sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -tvf -`, "sh", deb)) {
		f := strings.Fields(line)
		require.Equal(t, "root/root", f[1], line)
		entry := f[0] + " " + strings.TrimSuffix(strings.TrimPrefix(f[5], "."), "/")
		if slices.Contains(want, entry) || !above[strings.TrimPrefix(entry, "drwxr-xr-x ")] {
			got = append(got, entry)
		}
	}
	assert.ElementsMatch(t, want, got)
	assert.Contains(t, output(t, "dpkg-deb", "--info", deb, "postinst"), "\n"+strings.Join(chowned, "\n")+"\n")
	assert.Equal(t, "/etc/fenced/fenced.yaml\n", output(t, "dpkg-deb", "--info", deb, "conffiles"))
	assert.Regexp(t, `(?m)^Depends: systemd \(>= 252\)$`, output(t, "dpkg-deb", "--info", deb, "control"))
	root := t.TempDir()
	sh(t, `dpkg-deb --extract "$1" "$2"`, deb, root)
	hasTheRevision(t, filepath.Join(root, "usr/libexec/fenced/fenced"))
}

// TestLintian: what lintian says of the package, but for what its committed overrides explain.
func TestLintian(t *testing.T) {
	t.Parallel()
	deb := debFile(t)
	need(t, "lintian", "lintian")
	// The tests' package is not compressed.
	text, err := exec.Command("lintian", "--allow-root", "--fail-on", "error,warning", "--suppress-tags", "uses-no-compression-for-data-tarball", deb).CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Empty(t, string(text))
}

func TestDebScriptsStartNothing(t *testing.T) {
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		script := must.Do(os.ReadFile("deb/" + name))(t)
		require.NotRegexp(t, regexp.MustCompile(`systemctl (--now )?(enable|start|restart)`), string(script), "%s starts what no administrator started", name)
		output(t, "sh", "-n", "deb/"+name)
	}
}

// TestLifeOfTheDeb lets dpkg install, upgrade, remove and purge it under a real systemd: that of this machine, in CI Debian 12.
func TestLifeOfTheDeb(t *testing.T) {
	t.Parallel()
	lifeOfTheDeb(t)
}

// TestLifeOfTheDebUnderNewerSystemd does it with the dpkg and the systemd of Debian 13.
func TestLifeOfTheDebUnderNewerSystemd(t *testing.T) {
	t.Parallel()
	needBoot(t)
	lifeOfTheDeb(t, newerTree(t))
}

// TestLifeOfTheDebOnBookworm does it with nothing but what Debian 12 has in a small installation, whatever this machine is.
func TestLifeOfTheDebOnBookworm(t *testing.T) {
	t.Parallel()
	dice.OnlyInSoak(t) // on Debian 12 TestLifeOfTheDeb is nearly the same
	needBoot(t)
	lifeOfTheDeb(t, treeOf+strings.TrimSpace(output(t, "testdata/tree.sh", "bookworm")))
}

func lifeOfTheDeb(t *testing.T, env ...string) {
	t.Helper()
	needBoot(t)
	dir := shareScript(t, "deb.sh")
	older := debFile(t)
	newer := must.Do(builtNewDeb())(t)
	sh(t, `umask 022; cp "$2" "$1/older.deb"; cp "$3" "$1/newer.deb"; cp testdata/fenced.yaml testdata/nowhere.kubeconfig "$4/old.deb" "$1/"`, dir, older, newer, oldPackages(t))
	requireBoots(t, dir, "administrator.service", env,
		"ok installed, and nothing is started", "ok started", "ok upgraded: restarted, and the configuration kept", "ok removed: stopped, state and configuration kept", "ok purged: state kept",
		"ok upgraded from the old layout: restarted, the configuration kept, and nothing left behind")
}
