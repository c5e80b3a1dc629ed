package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/api"
)

func (c *cli) printBMCs(b api.BMCs) error {
	if len(b.BMCs) == 0 {
		_, err := fmt.Fprintln(c.out, "no host has a BMC")
		return err
	}
	several := severalClusters(b)
	head := []string{"NODE", "LEVEL", "DEVICE", "DRIVER", "ASSURANCE", "POWER", "IDENTITY", "LATENCY", "CHECKED", "PROBLEM"}
	if several {
		head = append([]string{"CLUSTER"}, head...)
	}
	if c.output == "wide" {
		head = append(head, "MODEL", "FIRMWARE", "FINDINGS")
	}
	t := newTable(head...)
	for i := range b.BMCs {
		d := &b.BMCs[i]
		row := []any{
			hostOf(d), levelOf(d), orDash(d.Device), orDash(d.Driver), assurance(d.Assurance), d.Power, identity(d.Identity),
			latency(d.LatencySeconds), checked(d), problem(d),
		}
		if several {
			row = append([]any{d.Cluster}, row...)
		}
		if c.output == "wide" {
			row = append(row, model(d), orDash(d.Firmware), findingCodes(d))
		}
		t.add(row...)
	}
	return t.write(c.out, c.painter(c.out), "")
}

// checked is when the device was last looked at.
func checked(d *api.BMC) cell {
	if d.NotChecked() {
		return cell{text: "not checked yet", color: yellow}
	}
	return cell{text: clock(d.Checked)}
}

func severalClusters(b api.BMCs) bool {
	return slices.ContainsFunc(b.BMCs, func(d api.BMC) bool { return d.Cluster != b.BMCs[0].Cluster })
}

// hostOf is what people call the host: its Node, or its entry.
func hostOf(d *api.BMC) string { return cmp.Or(d.Node, d.Host, d.Source, "-") }

func levelOf(d *api.BMC) string {
	if d.Level == 0 {
		return "-"
	}
	return fmt.Sprint(d.Level)
}

func assurance(text string) cell {
	if text == "lower" {
		return cell{text: text, color: yellow}
	}
	return cell{text: orDash(text)}
}

func identity(text string) cell {
	switch text {
	case "match", "":
		return cell{text: orDash(text)}
	case "mismatch":
		return cell{text: text, color: red}
	}
	return cell{text: text, color: yellow}
}

func latency(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return (time.Duration(seconds * float64(time.Second))).Round(time.Millisecond).String()
}

// problem is why a fence would fail or be refused, the reason code first; "-" for
// none. A failure that may pass is yellow.
func problem(d *api.BMC) cell {
	var failed string
	if d.Problem != "" {
		failed = d.Reason + ": " + d.Problem
	}
	switch {
	case len(d.Refused) > 0 && failed != "": // what failed may be why it is refused
		return cell{text: failed + "; " + d.Refused[0].Code, color: red}
	case len(d.Refused) > 0:
		return cell{text: d.Refused[0].Code + ": " + d.Refused[0].Message, color: red}
	case failed == "":
		return cell{text: "-"}
	case d.Dependable:
		return cell{text: failed, color: yellow}
	}
	return cell{text: failed, color: red}
}

// model is what the device is; one that could not say so lately shows why.
func model(d *api.BMC) cell {
	if d.DescribeProblem == "" {
		return cell{text: orDash(d.Model)}
	}
	return cell{text: orDash(d.Model) + " (not told lately: " + d.DescribeProblem + ")", color: yellow}
}

func findingCodes(d *api.BMC) cell {
	var codes []string
	for _, f := range d.Findings {
		codes = append(codes, f.Code)
	}
	if len(codes) == 0 {
		return cell{text: "-"}
	}
	return cell{text: strings.Join(codes, ","), color: yellow}
}

// printAudit shows one line for each weakness, and for what could not be looked at.
func (c *cli) printAudit(b api.BMCs) error {
	t := newTable("NODE", "DEVICE", "FINDING", "MESSAGE")
	audited := 0
	for i := range b.BMCs {
		d := &b.BMCs[i]
		if !d.Audited.IsZero() {
			audited++
		}
		if why := cmp.Or(d.AuditProblem, d.Problem); why != "" {
			t.add(hostOf(d), orDash(d.Device), cell{text: "not audited", color: red}, why)
		}
		for _, f := range d.Findings {
			t.add(hostOf(d), orDash(d.Device), cell{text: f.Code, color: yellow}, f.Message)
		}
	}
	if len(t.rows) == 0 {
		_, err := fmt.Fprintf(c.out, "no weakness is known of %d devices, %d of them audited so far\n", len(b.BMCs), audited)
		return err
	}
	return t.write(c.out, c.painter(c.out), "")
}
