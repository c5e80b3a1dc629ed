package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/wire"
)

// Limits of a bundle. The sizes are of what is in it, before it is compressed.
const (
	maxPart   = 8 << 20
	maxBundle = 64 << 20
	partTime  = 20 * time.Second
	wholeTime = 2 * time.Minute
)

// root is the directory that the archive makes where it is unpacked.
const root = "fenced-support/"

// Part is one file of a bundle, or why it is not there.
type Part struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`
	Note    string `json:"note,omitempty"`    // what of it was left out
	Problem string `json:"problem,omitempty"` // why it is not there
}

// bundle is an archive that is being written.
type bundle struct {
	zip   *gzip.Writer
	tar   *tar.Writer
	at    time.Time
	part  int // bytes that a part may have
	left  int // bytes
	parts []Part
	err   error // of the writing; then nothing more is written
}

func newBundle(w io.Writer, at time.Time) *bundle {
	zip := gzip.NewWriter(w)
	return &bundle{zip: zip, tar: tar.NewWriter(zip), at: at, part: maxPart, left: maxBundle}
}

// add adds a part, cut to its limit and without what no part may hold.
func (b *bundle) add(name string, text []byte, note string) {
	limit, size := min(b.part, b.left), len(text)
	text = Scrub(text[:min(size, limit)]) // which may make it longer
	if size > limit || len(text) > limit {
		note = strings.TrimPrefix(fmt.Sprintf("%s; cut: %d bytes are too large", note, size), "; ")
		text = text[:min(len(text), limit)]
	}
	b.left -= len(text)
	b.parts = append(b.parts, Part{Name: name, Bytes: len(text), Note: note})
	b.write(name, text)
}

// missing notes why a part is not there.
func (b *bundle) missing(name string, err error) {
	b.parts = append(b.parts, Part{Name: name, Problem: oneLine(err.Error())})
}

// addOr adds a part that could be read, and notes one that could not.
func (b *bundle) addOr(name string, text []byte, err error) {
	if err != nil {
		b.missing(name, err)
		return
	}
	b.add(name, text, "")
}

func (b *bundle) write(name string, text []byte) {
	if b.err != nil {
		return
	}
	b.err = b.tar.WriteHeader(&tar.Header{Name: root + name, Mode: 0o600, Size: int64(len(text)), ModTime: b.at, Typeflag: tar.TypeReg})
	if b.err == nil {
		_, b.err = b.tar.Write(text)
	}
}

// close writes the MANIFEST and ends the archive.
func (b *bundle) close(head string) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s\n\n%10s  PART\n", head, "BYTES")
	for _, p := range b.parts {
		switch {
		case p.Problem != "":
			fmt.Fprintf(&text, "%10s  %s: not read: %s\n", "-", p.Name, p.Problem)
		case p.Note != "":
			fmt.Fprintf(&text, "%10d  %s: %s\n", p.Bytes, p.Name, p.Note)
		default:
			fmt.Fprintf(&text, "%10d  %s\n", p.Bytes, p.Name)
		}
	}
	b.write("MANIFEST", text.Bytes())
	return errors.Join(b.err, b.tar.Close(), b.zip.Close())
}

// within ends the wait for what may hang: a daemon, a program, a file system. What hangs ends with
// the program.
func within[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		value, err := read(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("it took longer than %s, or than the %s of the whole bundle", partTime, wholeTime)
	}
}

// maxProblem bounds a reason, in bytes.
const maxProblem = 1000

// oneLine is a reason on one line without secrets.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(string(Scrub([]byte(text)))), " ")
	if len(text) > maxProblem {
		text = strings.ToValidUTF8(text[:maxProblem], "") + "..."
	}
	return text
}

// printable escapes what is no visible text: people read a bundle on a terminal.
func printable(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && wire.Unprintable(r) }) {
		return text
	}
	return wire.EscapeJSON(text)
}

// redacted stands where a secret would.
var redacted = bmc.Secret{}.String()

// Forms in which a secret stands in a text. fenced writes none of them; other programs may write
// into the journal of its unit, and people into a reason.
var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`)
	encodedKey = regexp.MustCompile(`\bLS0tLS1CRUdJTi[\w+/=]{20,}`) // the same in base64: "-----BEGIN "
	inURL      = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)[^\s"'<>]*@`)
	withoutURL = regexp.MustCompile(`\b([\w.+-]+:)[^\s"'<>@/\\]+@([\w[])`) // of a proxy, as in HTTP_PROXY
	header     = regexp.MustCompile(`(?i)\b(authorization|x-auth-token|cookie)(\\*"?[ \t]*[=:][ \t]*"?)(?:="[^"\n]*"|[^"\\\n]|\\.)+`)
	scheme     = regexp.MustCompile(`(?i)\b(bearer|basic) +([\w.~+/=-]{8,})`)
	jwt        = regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*`)
	// An option of a command line: --password x.
	option = regexp.MustCompile(`(?i)(--[\w-]*(?:password|passwd|pwd|secret|token|community)[ \t]+)[^\s-][^\s"]*`)
	// A word that ends like a secret's name, with a value: password=x, "token": "x", and JSON in JSON: \"token\":\"x\". A value may
	// have no end, for a part is cut before it is scrubbed.
	named = regexp.MustCompile(`(?i)\b([\w.-]*(?:password|passwd|passphrase|pwd|secret|token|(?:api|access|private|secret|encryption)[_-]?key|community))(\\*"?[ \t]*[=:][ \t]*)` +
		`("(?:[^"\\\n]|\\.)*"?|\\"(?:[^"\\\n]|\\{2,}"?|\\[^"\\\n])*\\"|\\+"[^"\n]*"?|'[^'\n]*'?|[^\s,;{}[\])"'\\][^\s,;}\])"']*)`)
)

// Scrub hides in a text what looks like a secret, and makes the text harmless to a terminal. It is a
// second line of defence: what reads the parts reads no secret. // I25
func Scrub(text []byte) []byte {
	text = privateKey.ReplaceAll(text, []byte(redacted))
	text = encodedKey.ReplaceAll(text, []byte(redacted))
	if bytes.IndexByte(text, '@') >= 0 { // of a large part each of these takes a second
		text = inURL.ReplaceAll(text, []byte("${1}"+redacted+"@"))
		text = withoutURL.ReplaceAll(text, []byte("${1}"+redacted+"@${2}"))
	}
	text = header.ReplaceAll(text, []byte("${1}${2}"+redacted))
	text = scheme.ReplaceAllFunc(text, hideCredentials)
	text = jwt.ReplaceAll(text, []byte(redacted))
	text = option.ReplaceAll(text, []byte("${1}"+redacted))
	text = named.ReplaceAllFunc(text, hideValue)
	return printable(text)
}

// encoded tells credentials after the name of a scheme from a word: "basic authentication".
var encoded = regexp.MustCompile(`[0-9=+/]|[a-z][A-Z]`)

func hideCredentials(match []byte) []byte {
	m := scheme.FindSubmatch(match)
	if !encoded.Match(m[2]) {
		return match
	}
	return []byte(string(m[1]) + " " + redacted)
}

// opening is a quote at the beginning of a text, in JSON in JSON with its backslashes.
var opening = regexp.MustCompile(`^\\*["']`)

// hideValue hides the value of a named secret and keeps its quotes, so that JSON stays JSON.
func hideValue(match []byte) []byte {
	m := named.FindSubmatch(match)
	quote := ""
	for _, before := range [][]byte{m[3], m[2]} { // in JSON the placeholder of a number must be a text, too
		if quote = string(opening.Find(before)); quote != "" {
			break
		}
	}
	return []byte(string(m[1]) + string(m[2]) + quote + redacted + quote)
}
