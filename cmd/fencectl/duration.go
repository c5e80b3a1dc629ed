package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const day = 24 * time.Hour

// days is a flag for a duration that may begin with days: 2d, 1d12h, 90m.
type days struct{ d *time.Duration }

// daysVar adds such a flag; 0 is its default.
func daysVar(flags *pflag.FlagSet, d *time.Duration, name, help string) {
	flags.Var(days{d}, name, help)
}

// Set implements pflag.Value.
func (f days) Set(text string) (err error) {
	*f.d, err = parseDays(text)
	return err
}

// String implements pflag.Value.
func (f days) String() string {
	if f.d == nil || *f.d == 0 {
		return "" // cobra then shows no default
	}
	return f.d.String()
}

// Type implements pflag.Value.
func (days) Type() string { return "duration" }

// parseDays reads a duration as Go writes it, which may begin with whole days.
func parseDays(text string) (time.Duration, error) {
	before, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is no duration like 2d, 4h or 30m", text)
		}
		return d, nil
	}
	count, err := strconv.ParseInt(before, 10, 32)
	var more time.Duration
	if err == nil && rest != "" {
		more, err = time.ParseDuration(rest)
	}
	if err != nil || count > 36500 || count < 0 || more < 0 {
		return 0, fmt.Errorf("%q is no duration like 2d, 1d12h or 30m", text)
	}
	return time.Duration(count)*day + more, nil
}
