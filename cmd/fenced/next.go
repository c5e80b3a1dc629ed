package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// nextOfProblem is what a person can do about the problem of a cluster. kubeconfig is the file with which it is watched.
func nextOfProblem(cs *engine.ClusterStatus, kubeconfig string) string {
	kubectl := "kubectl"
	if kubeconfig != "" {
		kubectl += " --kubeconfig " + kubeconfig
	}
	switch {
	case cs.ViewReason == reason.ClockSkew:
		return "chronyc tracking (or timedatectl timesync-status), on this host and on that of the API server, shows which clock is wrong; correct it there"
	case cs.ViewBad != "":
		return kubectl + " get nodes shows whether the API server answers, and allows it"
	case cs.HeldBy != "":
		return "decide which of the two fences " + cs.Name + ", and on the host of the other one run systemctl disable --now fenced; within a minute this one may act"
	case cs.Idle != "" && cs.Owner:
		return kubectl + " -n kube-system get lease fenced -o yaml"
	case cs.Idle != "":
		return "fencectl status on the other instances; and look at the etcd of state.etcd: etcdctl endpoint health"
	}
	return ""
}

// nextOfAudit is what a person can do about an audit log that cannot be written. fenced tries again by itself.
func nextOfAudit(path string, err error) string {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return "make room: df -h " + filepath.Dir(path) + "; fenced goes on by itself"
	}
	return "ls -ld " + filepath.Dir(path) + " " + path + "; fenced goes on by itself once its user can write it"
}

// refusesAccount says whether it is the account that a device refuses.
func refusesAccount(d *wire.BMC) bool {
	return d.Reason == string(reason.OfBMC(string(bmc.KindAuth))) || d.Reason == string(reason.OfBMC(string(bmc.KindPrivilege)))
}

// nextOfAccount is what a person can do about an account that a device refuses: where the right password belongs, and how
// to have it tried.
func nextOfAccount(d *wire.BMC) string {
	again := "fencectl bmc list shows it after the next health check"
	if d.Node != "" {
		again = wire.Order{Cluster: d.Cluster, Node: d.Node}.Command("bmc test")
	}
	kind, place, _ := strings.Cut(d.PasswordFrom, " ")
	user := cmp.Or(d.User, "its account")
	switch {
	case d.Reason == string(reason.OfBMC(string(bmc.KindPrivilege))):
		return "give user " + user + " the right to switch the power at " + d.Device + ", then " + again
	case kind == "file":
		return "write the password of user " + user + " at " + d.Device + " into " + place + " (no reload is needed), then " + again
	case kind == "Secret":
		ns, name, _ := strings.Cut(place, "/")
		return "correct the user and the password of " + d.Device + " (now " + user + "): kubectl -n " + ns + " edit secret " + name + "; then " + again
	}
	return "correct the password of user " + user + " at " + d.Device + " in its " + cmp.Or(d.PasswordFrom, "entry of hosts.d") + ", then systemctl restart fenced"
}

// maxAccounts bounds the accounts that the status names: each host can have one of its own. bmc list has all.
const maxAccounts = 10

// refusedAccounts are the first accounts that devices refuse, each once, but for those of which gaps say it.
func refusedAccounts(devices []wire.BMC, gaps []wire.NodeGap) (list []wire.RefusedAccount) {
	at := map[[2]string]int{} // in list, by user and place of the password
	said := map[[2]string]bool{}
	for i := range devices {
		d := &devices[i]
		if !refusesAccount(d) || d.PasswordFrom == "" {
			continue
		}
		key := [2]string{d.User, d.PasswordFrom}
		of := cmp.Or(d.Node, d.Machine)
		said[key] = said[key] || slices.ContainsFunc(gaps, func(g wire.NodeGap) bool { return g.Node == of && g.Reason == d.Reason })
		n, known := at[key]
		if !known {
			n, at[key] = len(list), len(list)
			list = append(list, wire.RefusedAccount{User: d.User, PasswordFrom: d.PasswordFrom, Cluster: d.Cluster, Node: d.Node, Machine: d.Machine,
				Device: d.Device, Reason: d.Reason, Problem: d.Problem, Next: nextOfAccount(d)})
		}
		list[n].Count++
	}
	list = slices.DeleteFunc(list, func(a wire.RefusedAccount) bool { return said[[2]string{a.User, a.PasswordFrom}] })
	return list[:min(len(list), maxAccounts)]
}

// explainBlocked gives targets that are blocked because a BMC refuses its account the name of that, and where it stands.
func explainBlocked(list []wire.Blocked, devices []wire.BMC) {
	type place struct{ cluster, reason, node, machine string } // a Node or a Machine
	refusing := map[place]*wire.BMC{}                          // the first of each
	for i := range devices {
		d := &devices[i]
		if !refusesAccount(d) {
			continue
		}
		for _, at := range []place{{d.Cluster, d.Reason, d.Node, ""}, {d.Cluster, d.Reason, "", d.Machine}} {
			if at.node+at.machine != "" && refusing[at] == nil {
				refusing[at] = d
			}
		}
	}
	for i := range list {
		b := &list[i]
		for _, at := range []place{{b.Cluster, b.Reason, "", b.Machine}, {b.Cluster, b.Reason, b.Node, ""}} {
			if d := refusing[at]; d != nil {
				b.Next = nextOfAccount(d)
			}
		}
	}
}

// nextOfReload is what a person can do about files that the daemon refused.
func nextOfReload(err error) string {
	if _, ok := errors.AsType[restartNeeded](err); ok {
		return "systemctl restart fenced"
	}
	return wire.CorrectFiles
}

// restartNeeded is why files that are right cannot be taken in by a reload.
type restartNeeded struct{ error }

func (e restartNeeded) Unwrap() error { return e.error }

func needRestart(format string, args ...any) error { return restartNeeded{fmt.Errorf(format, args...)} }
