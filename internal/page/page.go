// Package page draws what fenced knows as HTML: for fencectl ui, which serves it live on the loopback of a person's
// own machine, and as files without a script, to be sent or printed.
//
// What others wrote (names, messages, labels) is hostile text. html/template escapes it, and visible, which all HTML
// passes at last, shows what no reader sees. No text becomes an address: a link leads to a page of this package.
package page

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fenced/fenced/internal/wire"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets/style.css
var style string

// shared are the templates of this package. They are parsed for the first page: most verbs of fencectl show none.
var shared = sync.OnceValue(parse)

// parse reads the templates of this package, with the functions that each may use.
func parse() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"moment": moment, "clock": clock, "span": Span, "dash": dash, "step": wire.StepNumber, "plural": plural,
		"classnote": ClassNote, "tag": tagOf, "took": func(from, to time.Time) string { return Span(to.Sub(from)) },
		"subtract": func(a, b int64) int64 { return a - b },
		"ordinal":  func(i int) string { return []string{"1", "2"}[min(i, 1)] },
	}).ParseFS(templateFiles, "templates/*.html"))
}

// File is one HTML file: no script, its style inside, nothing that is fetched.
type File struct {
	Title string
	Made  time.Time
	Foot  string // a sentence at the end: which command wrote it
}

// Parse reads a template for Write. It may use what this package defines: the functions moment, clock, span, dash, step and
// plural, and the classes of the style sheet. It panics on an error, which is one of the program.
func Parse(text string) *template.Template {
	return template.Must(parse().New("body").Parse(text))
}

// Write writes a file. body is from Parse, and data is what it shows. Its parts are <section class="card"> with an <h2>;
// the <h1> stands in <div class="head">.
func Write(w io.Writer, f File, body *template.Template, data any) error {
	var b bytes.Buffer
	if err := body.Execute(&b, data); err != nil {
		return fmt.Errorf("draw %s: %w", f.Title, err)
	}
	return writeLayout(w, layout{Title: f.Title, Made: f.Made, Foot: f.Foot, Style: template.CSS(style), Body: template.HTML(b.String())})
}

// layout is the frame of a page. Style is set in a file, and Live on a page that is kept up to date.
type layout struct {
	Title string
	Made  time.Time
	Foot  string
	Style template.CSS
	Body  template.HTML // from a template of this package
	Link  template.HTML // whether the page is up to date
	Live  string        // the address of its stream
	Rev   uint64
}

func writeLayout(w io.Writer, l layout) error {
	var b bytes.Buffer
	if err := shared().ExecuteTemplate(&b, "layout", l); err != nil {
		return fmt.Errorf("draw %s: %w", l.Title, err)
	}
	_, err := io.WriteString(w, visible(b.String()))
	return err
}

// visible shows what is unprintable in HTML. The ends of lines stay: they are those of the templates, and mean no more than a
// space in what others wrote.
func visible(html string) string {
	if !strings.ContainsFunc(html, func(r rune) bool { return r != '\n' && wire.Unprintable(r) }) {
		return html
	}
	lines := strings.Split(html, "\n")
	for i := range lines {
		lines[i] = wire.Visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// moment is a time with its zone; a script adds how long ago it was.
func moment(t time.Time) template.HTML {
	if t.IsZero() {
		return "-"
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `">` + t.Format("2006-01-02 15:04:05") + ` UTC</time>`)
}

// clock is the time of day, with its zone; the date is in the title.
func clock(t time.Time) template.HTML {
	if t.IsZero() {
		return "-"
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `" title="` + t.Format(time.RFC3339) + `">` + t.Format("15:04:05") + `Z</time>`)
}

var timeElement = regexp.MustCompile(`<time datetime="([^"]+)"`)

// withAges adds to each time how long ago it was, as the script does later: the parts of a page do not hold it, because it
// changes all the time.
func withAges(html string, now time.Time) string {
	return timeElement.ReplaceAllStringFunc(html, func(element string) string {
		at, err := time.Parse(time.RFC3339, timeElement.FindStringSubmatch(element)[1])
		switch {
		case err != nil:
			return element
		case at.After(now):
			return element + ` data-age="in ` + Span(at.Sub(now)) + `"`
		}
		return element + ` data-age="` + Span(now.Sub(at)) + ` ago"`
	})
}

// Span writes a duration as precisely as people care.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return duration.HumanDuration(d)
}

func dash(s string) string { return cmp.Or(s, "-") }

// plural counts things: 1 run, 2 runs.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
