package api

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// bodyFields are the fields of an order that only some verbs take, in the order in which
// they are refused. With one of needsAdmin a caller skips a safeguard.
var bodyFields = []struct {
	name       string
	given      func(wire.Order) bool
	needsAdmin bool
}{
	{name: "asIs", given: func(o wire.Order) bool { return o.AsIs }, needsAdmin: true}, // what still waits to be brought back
	{name: "dryRun", given: func(o wire.Order) bool { return o.DryRun }},
	{name: "for", given: func(o wire.Order) bool { return o.For != 0 }},
	{name: "level", given: func(o wire.Order) bool { return o.Level != "" }},
	{name: "offOnly", given: func(o wire.Order) bool { return o.OffOnly }},
	{name: "shown", given: func(o wire.Order) bool { return o.Shown != "" }},
	{name: "typed", given: func(o wire.Order) bool { return o.Typed != "" }},
	{name: "yes", given: func(o wire.Order) bool { return o.Yes }, needsAdmin: true}, // the typed node name, or that another remediator has stopped
}

// needs gives the role that the order itself needs: who may only look may order a dry run of a
// fence, which changes nothing.
func needs(o wire.Order) wire.Role {
	row := o.Verb.Row()
	if o.DryRun && row.DryRun != wire.Nobody {
		return row.DryRun
	}
	return row.Need
}

// patterns are the routes of a verb.
func patterns(r wire.VerbRow) []string {
	objects := []wire.Object{r.Of}
	if r.Machine {
		objects = append(objects, wire.OfMachine)
	}
	if r.Group {
		objects = append(objects, wire.OfCluster)
	}
	var list []string
	for _, of := range objects {
		list = append(list, string(of)+string(r.Name))
		if r.Was != "" {
			list = append(list, string(of)+string(r.Was))
		}
	}
	return list
}

// pathOf is where an order is sent. An order about a Machine that the verb does not take
// goes where there is no route.
func pathOf(o wire.Order) string {
	of := o.Verb.Row().Of
	switch {
	case o.Machine != "":
		of = wire.OfMachine
	case o.Group.IsGiven():
		of = wire.OfCluster
	}
	namespace, machine, _ := strings.Cut(o.Machine, "/")
	return strings.NewReplacer("{node}", url.PathEscape(o.Node), "{id}", url.PathEscape(o.Run),
		"{namespace}", url.PathEscape(namespace), "{machine}", url.PathEscape(machine)).Replace(string(of) + string(o.Verb))
}

// checkBody refuses what an order of its verb cannot say.
func checkBody(o wire.Order) error {
	row := o.Verb.Row()
	takes := row.Takes
	if row.Group && o.Of() == "" {
		if err := CheckGroup(o.Group); err != nil {
			return err
		}
		takes = append([]string{"dryRun"}, takes...)
	} else if o.Group.IsGiven() {
		return BadRequest(fmt.Sprintf("%s takes no selector, zone or rack", o.Verb), "")
	}
	for _, f := range bodyFields {
		if f.given(o) && !slices.Contains(takes, f.name) {
			return BadRequest(fmt.Sprintf("%s takes no %s", o.Verb, f.name), "")
		}
	}
	if o.Verb == wire.LogLevel && !slices.Contains(wire.LogLevels, o.Level) {
		return BadRequest(fmt.Sprintf("%q is no log level", o.Level), "one of "+strings.Join(wire.LogLevels, ", "))
	}
	if o.For > maxFor {
		return BadRequest(fmt.Sprintf("for is longer than %s", time.Duration(maxFor)), "leave it out for a stop without an end")
	}
	return nil
}

// needsAdmin says whether the order skips a safeguard, which only an admin may.
func needsAdmin(o wire.Order) bool {
	for _, f := range bodyFields {
		if f.needsAdmin && f.given(o) {
			return true
		}
	}
	return false
}
