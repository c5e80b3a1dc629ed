package manifest

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/fenced/fenced/internal/policy"
)

// maxWindow is the longest maintenance window. A longer one would disable the
// policy for a time that nobody notices.
const maxWindow = 7 * 24 * time.Hour

// windows reads the maintenance windows of a FencePolicy.
func windows(spec object) []policy.Window {
	var list []policy.Window
	for _, o := range spec.shortList("maintenanceWindows") {
		o.allowKeys("schedule", "duration", "action")
		o.require("schedule", "duration")
		o.choice("action", "Pause") // the only action
		w := policy.Window{Text: o.text("schedule"), Duration: o.positiveDuration("duration")}
		if w.Duration > maxWindow {
			o.fail(o.at("duration"), "%q is longer than 7 days", o.text("duration"))
		}
		if o.has("schedule") {
			starts, err := schedule(w.Text)
			if err != nil {
				o.fail(o.at("schedule"), "%q is not a schedule: %s", w.Text, strings.ReplaceAll(err.Error(), ";", ","))
			}
			w.Starts = starts
		}
		list = append(list, w)
	}
	return list
}

const zonePrefix = "CRON_TZ="

var fiveFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// schedule parses five cron fields, in UTC unless CRON_TZ= sets another zone.
// This host's own zone is never used, so that a policy has the same meaning
// everywhere.
func schedule(text string) (cron.Schedule, error) {
	zone, rest := "UTC", text
	if after, ok := strings.CutPrefix(text, zonePrefix); ok {
		zone, rest, _ = strings.Cut(after, " ")
	}
	if zone == "" || zone == "Local" {
		return nil, fmt.Errorf("%s%s is not a time zone", zonePrefix, zone)
	}
	if strings.Contains(rest, "TZ=") {
		return nil, fmt.Errorf("%s may occur only once, at the beginning", zonePrefix)
	}
	s, err := fiveFields.Parse(zonePrefix + zone + " " + rest)
	if err != nil {
		return nil, err
	}
	// A fixed time, so that a valid policy stays valid. A leap day is less than
	// five years away from it, which is how far the library searches.
	if s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("it never matches")
	}
	return s, nil
}
