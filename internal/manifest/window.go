package manifest

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/fenced/fenced/internal/policy"
)

// maxWindow is the longest maintenance window: more is no window but an outage
// of the policy that nobody notices.
const maxWindow = 7 * 24 * time.Hour

// windows reads the maintenance windows of a FencePolicy.
func windows(spec object) []policy.Window {
	var list []policy.Window
	for _, o := range spec.few("maintenanceWindows") {
		o.only("schedule", "duration", "action")
		o.need("schedule", "duration")
		o.choice("action", "Pause") // all that a window does
		w := policy.Window{Text: o.text("schedule"), Duration: o.span("duration")}
		if w.Duration > maxWindow {
			o.fail(o.at("duration"), "%q is longer than 7 days", o.text("duration"))
		}
		if o.has("schedule") {
			starts, err := schedule(w.Text)
			if err != nil {
				o.fail(o.at("schedule"), "%q is no schedule: %s", w.Text, strings.ReplaceAll(err.Error(), ";", ","))
			}
			w.Starts = starts
		}
		list = append(list, w)
	}
	return list
}

const zonePrefix = "CRON_TZ="

var fiveFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// schedule reads five fields of cron, in UTC unless CRON_TZ= says otherwise.
// This host's own zone never matters: a policy means the same everywhere.
func schedule(text string) (cron.Schedule, error) {
	zone, rest := "UTC", text
	if after, ok := strings.CutPrefix(text, zonePrefix); ok {
		zone, rest, _ = strings.Cut(after, " ")
	}
	if zone == "" || zone == "Local" {
		return nil, fmt.Errorf("%s%s names no time zone", zonePrefix, zone)
	}
	if strings.Contains(rest, "TZ=") {
		return nil, fmt.Errorf("only one %s at the beginning says the time zone", zonePrefix)
	}
	s, err := fiveFields.Parse(zonePrefix + zone + " " + rest)
	if err != nil {
		return nil, err
	}
	// A fixed time, so that a policy that was right stays right; from here it is
	// less than five years, as far as the library looks, to a leap day.
	if s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("it never happens")
	}
	return s, nil
}
