package k8swatch

import (
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

// LogTo sends to w what client-go logs by itself, as the warnings that an API server adds to
// its answers. Without it that goes to stderr, whose reader may hold up who logs. w must not
// block.
func LogTo(w io.Writer) {
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: withoutTime})))
}

// withoutTime leaves the time to the log that a line goes to.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
