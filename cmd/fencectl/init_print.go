package main

import (
	"fmt"

	"github.com/fenced/fenced/internal/setup"
)

// initResult is the output of init -o json.
type initResult struct {
	setup.Survey
	Distribution string `json:"distribution"`
	// Written is false with --dry-run.
	Written bool         `json:"written"`
	Files   []setup.File `json:"files"`
	Next    []setup.Step `json:"next"`
}

// printInit says what was seen, what was written, and what to do next.
func (c *cli) printInit(r *initResult) error {
	for i, v := range r.Servers {
		what := "cluster " + r.Cluster
		if i > 0 {
			what = "its management cluster"
		}
		fmt.Fprintf(c.out, "%s: %s, %s %s\n", what, escapeControl(v.URL), r.Distribution, escapeControl(v.Version))
		if v.IsLoopback() {
			fmt.Fprintln(c.out, "warning: this address is right only on the host of the API server; with fenced elsewhere, add --server https://ADDRESS:PORT")
		}
	}
	for _, print := range []func(*initResult) error{c.printKinds, c.printControllers, c.printNodes} {
		if err := print(r); err != nil {
			return err
		}
	}
	if len(r.Report.Checks) == 0 {
		fmt.Fprintln(c.out, "\nfenced begins nothing by itself: no check asks for anything. docs/systems.md says which checks and policies it takes")
	} else {
		fmt.Fprintln(c.out, "\nWHAT THE CHECKS ASK FOR NOW")
		if err := c.printReport(&r.Report); err != nil {
			return err
		}
	}
	if err := c.printUnseen(r); err != nil {
		return err
	}
	return c.printNext(r)
}

// printUnseen prints sentences, which are too long for a table.
func (c *cli) printUnseen(r *initResult) error {
	p := c.painter(c.out)
	for i, u := range r.Unseen {
		if i == 0 {
			fmt.Fprintln(c.out, "\nNOT SEEN")
		}
		if _, err := fmt.Fprintf(c.out, "%s: %s\n  %s\n", p.paint(yellow, escapeControl(u.What)), escapeControl(u.Error), escapeControl(u.Matters)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) printKinds(r *initResult) error {
	t := newTable("KIND", "GROUP", "OBJECTS")
	for _, k := range r.Kinds {
		if !k.Served && k.Problem == "" {
			continue
		}
		objects := cell{text: fmt.Sprint(k.Objects)}
		if k.Problem != "" {
			objects = cell{text: "not seen", color: yellow}
		}
		t.add(k.Kind, orDash(k.Group), objects)
	}
	return t.write(c.out, c.painter(c.out), "KINDS THAT ARE SERVED")
}

func (c *cli) printControllers(r *initResult) error {
	t := newTable("REMEDIATOR", "ALIVE", "LEASE")
	for _, k := range r.Controllers {
		alive := cell{text: "no"}
		switch {
		case k.Problem != "":
			alive = cell{text: "not known", color: yellow}
		case k.Holder != "":
			alive = cell{text: "yes", color: yellow}
		case len(k.Elsewhere) > 0:
			alive = cell{text: "no, unless " + k.Elsewhere[0] + " is in controllerNamespaces", color: yellow}
		}
		t.add(k.Name, alive, k.Lease)
	}
	return t.write(c.out, c.painter(c.out), "OTHER REMEDIATORS")
}

func (c *cli) printNodes(r *initResult) error {
	t := newTable("NODE", "MACHINE", "READY", "BMC", "REFUSED NOW (CONTESTED)")
	for _, n := range r.Nodes {
		ready, bmc := cell{text: "yes", color: green}, cell{text: n.BMC}
		if !n.Ready {
			ready = cell{text: "no", color: yellow}
		}
		if n.BMC == "" {
			bmc = cell{text: "none", color: yellow}
		}
		contested := orDash(n.Contested)
		if !n.Asked {
			contested = "not asked"
		}
		t.add(n.Name, orDash(n.Machine), ready, bmc, contested)
	}
	return t.write(c.out, c.painter(c.out), "HOSTS")
}

func (c *cli) printNext(r *initResult) error {
	title := "WRITTEN"
	if !r.Written {
		title = "WOULD BE WRITTEN"
	}
	t := newTable("FILE", "CONTENT")
	for _, f := range r.Files {
		t.add(f.Path, f.What)
	}
	if err := t.write(c.out, c.painter(c.out), title); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "\nNEXT")
	for i, s := range r.Next {
		if _, err := fmt.Fprintf(c.out, "%d. %s:\n     %s\n", i+1, escapeControl(s.Do), escapeControl(s.Command)); err != nil {
			return err
		}
	}
	return nil
}
