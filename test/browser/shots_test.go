package browser

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// shotBytes is how large a picture for the documents may be.
const shotBytes = 150_000

// TestShots draws the pictures of the documents, from the stage while a fence is on its way, into the directory FENCED_SHOTS.
func TestShots(t *testing.T) {
	dir := os.Getenv("FENCED_SHOTS")
	if dir == "" {
		t.Skip("draws pictures; make shots sets FENCED_SHOTS")
	}
	b := startChrome(t)
	s := setStage(t, 28)
	u := startUI(t, s.Socket())
	tab := b.open(t)
	tab.do(t, chromedp.Navigate(u.address))
	home := eval[string](t, tab, "location.href")
	s.Worker(hungNode).Kubelet.Hang()
	tab.size(t, 1280, "light")
	tab.do(t, chromedp.EmulateViewport(1280, 1100))
	tab.wait(t, fmt.Sprintf(`[...document.querySelectorAll("#s-runs article")].some((run) => run.textContent.includes(%q) &&
		[...run.querySelectorAll(".reads span")].filter((e) => e.textContent.startsWith("read ")).length === 2)`, hungNode))
	shoot(t, tab, "#main", filepath.Join(dir, "ui.png"))
	run := s.nodes(t)[hungNode].Run
	s.await(t, func(n map[string]wire.Node) bool { return n[hungNode].State == wire.NodeHealthy })
	tab.do(t, chromedp.Navigate(home+"run?id="+run), chromedp.EmulateViewport(1280, 800))
	shoot(t, tab, "#main", filepath.Join(dir, "ui-run.png"))
	tab.size(t, 1280, "dark")
	tab.do(t, chromedp.Navigate(home), chromedp.EmulateViewport(1280, 640))
	shoot(t, tab, "#s-map", filepath.Join(dir, "ui-map.png"))
}

// shoot writes what the window shows from an element on, as a PNG of few colours.
func shoot(t *testing.T, b *tab, from, file string) {
	t.Helper()
	eval[*bool](t, b, fmt.Sprintf(`window.scrollTo({top: document.querySelector(%q).getBoundingClientRect().top + window.scrollY - 70, behavior: "instant"}),
		new Promise((yes) => requestAnimationFrame(() => requestAnimationFrame(() => yes(null))))`, from))
	shot := must.Do(png.Decode(bytes.NewReader(must.Do(chromedp.Run(b.ctx, chromedp.CaptureScreenshot()))(t))))(t)
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, fewColours(shot)))
	assert.Less(t, out.Len(), shotBytes, file)
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
}

// fewColours is a picture with the 256 colours that are most frequent in it; each other one becomes the nearest of them.
func fewColours(from image.Image) *image.Paletted {
	counts := map[color.RGBA]int{}
	area := from.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	palette := color.Palette{}
	for _, c := range all[:min(len(all), 256)] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	for _, c := range all {
		index[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(area, palette)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			to.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	return to
}
