package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
)

// observe keeps, for each thing that the page says of a Node, when the document said it first, and when that was on the screen: two
// frames later. Times are milliseconds since 1970.
const observe = `(() => {
	const node = %q;
	window.said = [];
	const known = new Set();
	const now = () => performance.timeOrigin + performance.now();
	const look = () => {
		const at = now();
		const says = [];
		for (const run of document.querySelectorAll("#s-runs article")) {
			if (!run.textContent.includes(node)) continue;
			for (const open of run.querySelectorAll("progress")) says.push("step " + open.getAttribute("aria-label").split(" ")[3]);
			const reads = [...run.querySelectorAll(".reads span")].filter((e) => e.textContent.startsWith("read ")).length;
			if (reads) says.push("reads of Off " + reads);
		}
		for (const row of document.querySelectorAll("#s-recent tr")) {
			if (row.textContent.includes(node) && row.textContent.includes("Done")) says.push("step Done");
		}
		for (const what of says) {
			if (known.has(what)) continue;
			known.add(what);
			const one = {what: what, document: at, screen: 0};
			window.said.push(one);
			requestAnimationFrame(() => requestAnimationFrame(() => (one.screen = now())));
		}
	};
	new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
	look();
	return null;
})()`

// said is one thing that the page says.
type said struct {
	What             string
	Document, Screen float64
}

// watchFence hangs a Node and watches the page until its run is done. It prints how long after the daemon's event each step was in
// the page; no time is required, because a machine that is busy is no defect.
func watchFence(t *testing.T, s stage, b *tab, home string) {
	b.size(t, 1280, "light")
	b.do(t, chromedp.Navigate(home))
	eval[*bool](t, b, fmt.Sprintf(observe, hungNode))
	since := time.Now()
	s.Worker(hungNode).Kubelet.Hang()
	steps, run := stepsOf(t, s, hungNode, since)
	b.wait(t, `window.said.some((one) => one.what === "step Done" && one.screen)`)

	var list []said
	require.NoError(t, json.Unmarshal([]byte(eval[string](t, b, "JSON.stringify(window.said)")), &list))
	at := map[string]said{}
	for _, one := range list {
		at[one.What] = one
	}
	for _, must := range []string{"step PowerOff", "reads of Off 1", "reads of Off 2", "step Done"} { // the others may be over before the page is drawn anew
		assert.Contains(t, at, must)
	}
	for _, e := range steps {
		one, seen := at["step "+e.Step]
		if !seen {
			t.Logf("%-12s was over before the page was drawn anew", e.Step)
			continue
		}
		after := func(ms float64) time.Duration {
			return time.UnixMicro(int64(ms * 1000)).Sub(e.At).Round(time.Millisecond)
		}
		t.Logf("%-12s in the document %v after the event, on the screen %v after it", e.Step, after(one.Document), after(one.Screen))
	}

	b.do(t, chromedp.Navigate(home+"run?id="+run))
	assert.Len(t, eval[[]string](t, b, `[...document.querySelectorAll(".reads span")].map((e) => e.textContent).filter((text) => text.startsWith("read "))`), 2,
		"the reads stay with the run")
	assert.True(t, eval[bool](t, b, `document.body.textContent.includes("Done")`))
}

// stepsOf follows the daemon's events of a Node until its run is done, and returns the steps and the run.
func stepsOf(t *testing.T, s stage, node string, since time.Time) (steps []wire.Event, run string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for e, err := range api.New(s.Socket()).Events(ctx, 0) {
		require.NoError(t, err)
		if e.Node != node || e.At.Before(since) || !slices.Contains([]string{"Started", "Step"}, e.Type) {
			continue
		}
		steps, run = append(steps, e), e.Run
		switch e.Step {
		case "Done":
			return steps, run
		case "Held", "Aborted", "Waiting":
			require.Fail(t, "the run did not end as Done", "%+v", e)
		}
	}
	require.Fail(t, "the run did not end")
	return nil, ""
}
