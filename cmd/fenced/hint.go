package main

import (
	"errors"
	"net/http"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/reason"
)

// commandOn is a command line of fencectl about what an order is about; the verb may have flags.
func commandOn(o api.Order, verb string) string {
	of := " " + o.Node
	if o.Machine != "" {
		of = " --machine " + o.Machine
	}
	if o.Cluster != "" {
		of += " --cluster " + o.Cluster
	}
	return "fencectl " + verb + of
}

// withReason is a command line that needs a reason.
func withReason(line string) string { return line + " --reason WHY" }

// apiError gives a refusal its place among the API's errors, with the command that helps. o is
// the order, or says what was asked about.
func apiError(o api.Order, err error) error {
	r, ok := errors.AsType[*reason.Refusal](err)
	if !ok {
		return err
	}
	code, hint := string(r.Reason), refusalHint(o, r.Reason)
	switch r.Reason {
	case reason.NoSuchNode, reason.NoSuchMachine, reason.NoSuchCluster, reason.NoSuchRun:
		return api.NotFound(code, r.Message, hint)
	case reason.ClusterRequired:
		return &api.Error{Status: http.StatusBadRequest, Code: code, Message: r.Message, Hint: hint}
	case reason.NoHold, reason.NoRun, reason.UnderRemediation, reason.NotFrozen:
		return api.Conflict(code, r.Message, hint)
	}
	return api.Refused(code, r.Message, hint)
}

// refusalHint is what to do about a refusal, for this very node where that helps.
func refusalHint(o api.Order, code reason.Code) string {
	ofCluster := ""
	if o.Cluster != "" {
		ofCluster = " --cluster " + o.Cluster
	}
	switch code {
	case reason.NoSuchNode:
		return "kubectl get nodes lists the names; fencectl bmc list" + ofCluster + " lists those with a BMC, fencectl status the clusters"
	case reason.NoSuchMachine:
		return "kubectl get machines -A lists the names, which are NAMESPACE/NAME here; fencectl status lists the clusters"
	case reason.NoSuchCluster:
		return "fencectl status lists the clusters"
	case reason.NoSuchRun:
		return "fencectl history lists the runs"
	case reason.ClusterRequired:
		return "add --cluster NAME"
	case reason.NoHold, reason.TooManyHolds:
		return "fencectl status lists the holds"
	case reason.NoRun:
		return "see fencectl status for the open runs"
	case reason.NotFrozen:
		return "fencectl bmc list" + ofCluster + " shows what is refused, and why"
	case reason.NotOwner:
		return "give it at the instance that owns the cluster: fencectl status names it"
	case reason.Observing:
		return "fencectl arm" + ofCluster + " --reason WHY lets fenced act; an admin may fence one node without that"
	case reason.OrderRefused:
		if o.Verb == api.Disarm {
			return "to stop fencing there: " + withReason("fencectl pause"+ofCluster)
		}
	case reason.Paused:
		return "fencectl status says who paused what; " + withReason("fencectl resume"+ofCluster) + " ends it"
	}
	if o.Of() == "" {
		if o.Run != "" {
			return "fencectl timeline " + o.Run
		}
		return "see fencectl status"
	}
	switch code {
	case reason.Hold:
		return withReason(commandOn(o, "release"))
	case reason.NotEnrolled, reason.AddressChanged:
		return "check the cabling, then run " + withReason(commandOn(o, "bmc enroll"))
	case reason.Contested:
		return "hand the check over, or let the other remediator finish (install.md, section 6); " + commandOn(o, "explain") + " shows who"
	case reason.NoHost:
		return "give the host a BareMetalHost, or an entry in hosts.d; " + commandOn(o, "explain") + " shows what was looked for"
	case reason.PowerOwner:
		return "the BareMetalHost's owner switches the power: install.md, section 6, Beside Metal3; " + commandOn(o, "explain") + " shows the field"
	case reason.Frozen, reason.ClassFrozen:
		return "repair the BMC, then run " + withReason(commandOn(o, "bmc release"))
	}
	return commandOn(o, "explain") + " shows every gate"
}
