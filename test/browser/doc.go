// Package browser has tests that look at the page of fencectl ui with a real browser: Debian's Chromium, driven by chromedp. They
// have no code that anything else uses.
package browser
