package docs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// verbs are those of fencectl, by their path like "bmc list", each with its flags; "" is
// fencectl itself, with the flags that every verb has.
type verbs map[string][]string

// usageLines are the command lines that the helps show, by verb; readVerbs fills them.
var usageLines = map[string]string{}

// programs is the directory of what the tests build.
var programs string

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "fenced-docs-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs) // left-overs in the temporary directory harm nobody
	os.Exit(code)
}

// fencectl is the program, built once as it is released.
var fencectl = sync.OnceValues(func() (string, error) {
	return scene.Program(context.Background(), programs, "fencectl")
})

// readVerbs reads them from the program's help.
var readVerbs = sync.OnceValues(func() (verbs, error) {
	program, err := fencectl()
	if err != nil {
		return nil, err
	}
	all := verbs{}
	return all, errors.Join(all.read(program), all.read(program, "dial-stdio")) // help does not list that one
})

func fencectlVerbs(t *testing.T) verbs {
	t.Helper()
	all := must.Do(readVerbs())(t)
	require.Greater(t, len(all), 25, "the verbs were not found")
	return all
}

var (
	helpFlag = regexp.MustCompile(`(?m)^ +(?:(-\w), )?(--[\w-]+)`)
	// helpVerbs are the lists of verbs, each under its heading.
	helpVerbs = regexp.MustCompile(`(?m)^(?:Available Commands|Additional Commands|Look|Act|Stop, and go on|Set up):\n(?:  .*\n)+`)
	helpVerb  = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +\S`)
)

func (v verbs) read(program string, path ...string) error {
	help, err := exec.Command(program, append(path, "--help")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v --help: %w: %s", path, err, help)
	}
	flags := []string{}
	for _, m := range helpFlag.FindAllStringSubmatch(string(help), -1) {
		flags = append(flags, m[2])
		if m[1] != "" {
			flags = append(flags, m[1])
		}
	}
	v[strings.Join(path, " ")] = flags
	_, usage, _ := strings.Cut(string(help), "Usage:\n")
	usageLines[strings.Join(path, " ")], _, _ = strings.Cut(strings.TrimSpace(usage), "\n")
	below := ""
	for _, list := range helpVerbs.FindAllString(string(help), -1) {
		below += list
	}
	for _, m := range helpVerb.FindAllStringSubmatch(below, -1) {
		if m[1] == "help" { // cobra's own
			continue
		}
		if err := v.read(program, append(slices.Clone(path), m[1])...); err != nil {
			return err
		}
	}
	return nil
}

func (v verbs) own(path string) (flags []string) {
	for _, flag := range v[path] {
		if !slices.Contains(v[""], flag) {
			flags = append(flags, flag)
		}
	}
	return flags
}

func (v verbs) hasBelow(path string) bool {
	for other := range v {
		if strings.HasPrefix(other, path+" ") {
			return true
		}
	}
	return false
}

// check reports what a command line names and fencectl does not have.
func (v verbs) check(t *testing.T, file string, words []string) {
	t.Helper()
	path := ""
	name := regexp.MustCompile(`^[a-z][a-z-]*$`)
	for len(words) > 0 && name.MatchString(words[0]) && (path == "" || v.hasBelow(path)) {
		path = strings.TrimSpace(path + " " + words[0])
		words = words[1:]
		if !assert.Contains(t, v, path, "%s names fencectl %s, which is no verb", file, path) {
			return
		}
	}
	for _, word := range words {
		if flag := flagOf(word); flag != "" {
			assert.Contains(t, v[path], flag, "%s names a flag that fencectl %s does not have", file, path)
		}
	}
}

// flagOf is the flag in a word of a command line like [--for or --head=1:abc, or "".
func flagOf(word string) string {
	return regexp.MustCompile(`^-(?:\w$|-[a-z][\w-]*)`).FindString(strings.Trim(word, "[](),."))
}

// fencedFlags are those of the daemon: the first text in each call that adds one.
func fencedFlags(t *testing.T) (flags []string) {
	t.Helper()
	data := must.Do(os.ReadFile("../cmd/fenced/main.go"))(t)
	for _, m := range regexp.MustCompile(`\bflags\.(?:\w*Var|String|Bool|Func)\([^"\n]*"([\w-]+)"`).FindAllSubmatch(data, -1) {
		dashes := "--"
		if len(m[1]) == 1 {
			dashes = "-"
		}
		flags = append(flags, dashes+string(m[1]))
	}
	require.Greater(t, len(flags), 5, "the flags of fenced were not found")
	return flags
}

// othersFlags are the flags of other programs that the documents name alone.
var othersFlags = []string{"--client-cert-auth", "--bump-revision", "--mark-compacted", "--node-monitor-grace-period", "--event-ttl", "--take-ownership"}

// TestNamedCommandsExist: each verb and each flag that a document names is one of fencectl
// or of fenced.
func TestNamedCommandsExist(t *testing.T) {
	all, daemon := fencectlVerbs(t), fencedFlags(t)
	every := slices.Concat(append(slices.Collect(maps.Values(all)), daemon, othersFlags)...)
	found := 0
	for file, text := range documents(t) {
		for _, snippet := range snippets(text) {
			for _, words := range commandLines(snippet) {
				switch first := words[0]; {
				case first == "fencectl":
					found++
					all.check(t, file, words[1:])
				case first == "fenced":
					for _, word := range words[1:] {
						if flag := flagOf(word); flag != "" {
							assert.Contains(t, daemon, flag, "%s names a flag that fenced does not have", file)
						}
					}
				case all[first] != nil && len(words) > 1:
					all.check(t, file, words)
				case flagOf(first) != "":
					found++
					assert.Contains(t, every, flagOf(first), "%s names a flag %s that nothing has", file, first)
				}
			}
		}
	}
	require.Greater(t, found, 150, "the commands were not found")
}

// TestManPagesHaveEveryFlag: each verb of fencectl has an entry that names its own flags, the
// synopsis names those that all have, and no entry names one that is not there. So for fenced.
func TestManPagesHaveEveryFlag(t *testing.T) {
	all := fencectlVerbs(t)
	page := manPage(t, "fencectl.8")
	told, wanted := verbs{}, verbs{}
	for item, lines := range entries(page) {
		for part := range strings.SplitSeq(item, " , ") {
			path := strings.Join(arguments("Ic", part), " ")
			if path == "" {
				continue
			}
			wanted[path] = flagsOf(part)
			told[path] = append(flagsOf(part), flagsOf(strings.Join(lines, "\n"))...)
		}
	}
	require.Greater(t, len(told), 25, "the entries were not found")
	for path := range all {
		if path == "" || all.hasBelow(path) && path != "completion" || strings.HasPrefix(path, "completion ") {
			continue
		}
		if !assert.Contains(t, told, path, "fencectl.8 has no entry for it") {
			continue
		}
		for _, flag := range all.own(path) {
			if strings.HasPrefix(flag, "--") {
				assert.Contains(t, told[path], flag, "fencectl.8 does not name this flag of %s", path)
			}
		}
	}
	for path, flags := range wanted {
		assert.Contains(t, all, path, "fencectl.8 has an entry for what is no verb")
		for _, flag := range flags {
			assert.Contains(t, all[path], flag, "fencectl.8 names a flag that %s does not have", path)
		}
	}
	synopsis, _, _ := strings.Cut(page, ".Bl ")
	for _, flag := range all[""] {
		if flag != "--help" && flag != "-h" {
			assert.Contains(t, flagsOf(synopsis), flag, "fencectl.8 does not name this flag of all verbs")
		}
	}
	assert.ElementsMatch(t, fencedFlags(t), unique(flagsOf(manPage(t, "fenced.8"))), "the flags of fenced.8")
}

// TestManPageAgreesWithHelp: the line of each verb in fencectl.8 takes the arguments that its help
// names, and every flag of its help, no more and no less.
func TestManPageAgreesWithHelp(t *testing.T) {
	all, usage := fencectlVerbs(t), usages(t)
	found := 0
	for item := range entries(manPage(t, "fencectl.8")) {
		for part := range strings.SplitSeq(item, " , ") {
			path := strings.Join(arguments("Ic", part), " ")
			line, known := usage[path]
			if path == "" || !known || path == "completion" {
				continue
			}
			found++
			wanted := slices.DeleteFunc(all.own(path), func(flag string) bool { return !strings.HasPrefix(flag, "--") || flag == "--help" })
			told := slices.DeleteFunc(flagsOf(part), func(flag string) bool { return !strings.HasPrefix(flag, "--") || flag == "--output" })
			assert.ElementsMatch(t, unique(wanted), unique(told), "the flags of %s in its line of fencectl.8", path)
			assert.Equal(t, positional(line), positionalInMan(part), "the arguments of %s in fencectl.8; its help says %s", path, line)
		}
	}
	assert.Greater(t, found, 25, "the entries were not found")
}

// usages are the command lines that the helps show, by verb.
func usages(t *testing.T) map[string]string {
	t.Helper()
	must.Do(readVerbs())(t)
	return usageLines
}

var helpArgument = regexp.MustCompile(`\b(NODE|RUN|CHECK|FILE)\b`)

// positional are the arguments in a command line of a help that belong to no flag.
func positional(line string) []string {
	line = regexp.MustCompile(`--[\w-]+ \S+`).ReplaceAllString(strings.ReplaceAll(line, "|--machine NAMESPACE/NAME", ""), "")
	return lowered(helpArgument.FindAllString(line, -1))
}

func positionalInMan(line string) (found []string) {
	line = regexp.MustCompile(`Fl -[\w-]+ Ar \S+( Ns = Ns Ar \S+)?`).ReplaceAllString(line, "")
	for _, word := range arguments("Ar", line) {
		if helpArgument.MatchString(strings.ToUpper(word)) {
			found = append(found, word)
		}
	}
	return found
}

func lowered(words []string) (low []string) {
	for _, word := range words {
		low = append(low, strings.ToLower(word))
	}
	return low
}

func flagsOf(text string) (flags []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, ".Nm fenced ") {
			continue // of the other program
		}
		for _, flag := range arguments("Fl", line) {
			flags = append(flags, "-"+strings.TrimRight(flag, ".,;"))
		}
	}
	return flags
}

func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

func manPage(t *testing.T, name string) string {
	t.Helper()
	data := must.Do(os.ReadFile("man/" + name))(t)
	return string(data)
}

// TestDocumentedKubectlIsUnderstood gives each command of kubectl or oc that stands in a document to kubectl, which reads
// its flags before it asks nobody but its own help; and each file that one applies is in the package.
func TestDocumentedKubectlIsUnderstood(t *testing.T) {
	dir := must.Do(rig.Kubectl(t.Context(), os.Stderr))(t)
	understands := func(command string) error {
		own, _, _ := strings.Cut(command, " -- ") // what follows is another program's
		_, err := exec.Command(filepath.Join(dir, "kubectl"), append(words(own), "--help")...).Output()
		return err
	}
	seen := map[string]bool{}
	for file, text := range documents(t) {
		lines := blockLines(text)
		for _, m := range regexp.MustCompile("`((?:kubectl|oc) [^`]+)`").FindAllStringSubmatch(text, -1) {
			lines = append(lines, m[1])
		}
		for _, line := range lines {
			for _, m := range regexp.MustCompile(`(?:^|[;&|]) *(?:sudo )?(?:kubectl|oc) ([^#;&|>]*)`).FindAllStringSubmatch(line, -1) {
				command := strings.TrimSpace(m[1])
				if seen[command] || strings.HasPrefix(command, "adm ") { // of oc alone
					continue
				}
				seen[command] = true
				assert.NoError(t, understands(command), "%s: kubectl %s", file, command)
				for _, example := range regexp.MustCompile(`/usr/share/fenced/(\S+)`).FindAllStringSubmatch(command, -1) {
					_, err := os.Stat(filepath.Join("../configs", example[1]))
					assert.NoError(t, err, "%s: kubectl %s", file, command)
				}
			}
		}
	}
	require.Greater(t, len(seen), 20, "the commands were not found")
	require.Error(t, understands("annotate node NODE --nothing"), "a wrong flag is noticed")
	require.Error(t, understands("annotat node NODE"), "a wrong verb is noticed")
}
