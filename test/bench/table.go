package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// table prints the output of `go test -bench -benchmem` as one table per
// package. Every other line (a failure among them) is passed on as it is.
func table(in io.Reader, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := 0
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		pkg, isPkg := strings.CutPrefix(line, "pkg: ")
		b, isRow := parseBenchmark(line)
		switch {
		case isPkg:
			fmt.Fprintf(w, "\n%s\ttimes run\ttime/op\tmemory/op\tallocations/op\tother\n", pkg)
		case isRow:
			rows++
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", b.name, b.runs, b.metric("ns/op", short), b.metric("B/op", size),
				b.metric("allocs/op", plain), b.others())
		case !noise(line):
			fmt.Fprintln(w, line)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the benchmarks: %w", err)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if rows == 0 {
		return fmt.Errorf("read the benchmarks: there is none")
	}
	return nil
}

// noise is what go test says about itself and the machine.
func noise(line string) bool {
	for _, p := range []string{"goos: ", "goarch: ", "cpu: ", "PASS", "ok  \t", "?   \t", "      \t"} {
		if strings.HasPrefix(line, p) {
			return true
		}
	}
	return line == ""
}

// benchmark is one line of results; metrics are value and unit in turn.
type benchmark struct {
	name, runs string
	metrics    []string
}

func parseBenchmark(line string) (b benchmark, ok bool) {
	f := strings.Fields(line)
	if len(f) < 4 || len(f)%2 != 0 || !strings.HasPrefix(f[0], "Benchmark") {
		return b, false
	}
	return benchmark{name: strings.TrimPrefix(f[0], "Benchmark"), runs: f[1], metrics: f[2:]}, true
}

func (b benchmark) metric(unit string, show func(float64) string) string {
	for i := 0; i < len(b.metrics); i += 2 {
		if b.metrics[i+1] != unit {
			continue
		}
		v, err := strconv.ParseFloat(b.metrics[i], 64)
		if err != nil {
			return b.metrics[i] // shown as it came
		}
		return show(v)
	}
	return "-"
}

func plain(v float64) string { return fmt.Sprintf("%.0f", v) }

func short(ns float64) string {
	if ns < 1000 {
		return fmt.Sprintf("%.1f ns", ns)
	}
	return scaled(ns/1000, 1000, "us", "ms", "s")
}

func size(n float64) string { return scaled(n, 1024, "B", "KiB", "MiB", "GiB") }

func scaled(v, step float64, units ...string) string {
	for len(units) > 1 && v >= step {
		v, units = v/step, units[1:]
	}
	return fmt.Sprintf("%.4g %s", v, units[0])
}

// others are the metrics that a benchmark reports of its own.
func (b benchmark) others() string {
	var all []string
	for i := 0; i < len(b.metrics); i += 2 {
		switch unit := b.metrics[i+1]; unit {
		case "ns/op", "B/op", "allocs/op":
		default:
			all = append(all, b.metrics[i]+" "+unit)
		}
	}
	return strings.Join(all, ", ")
}
