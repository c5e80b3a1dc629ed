package setup

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// claimFunction makes the Namespace of the ServiceAccount. One that exists was perhaps made by somebody who
// waited for its token, so it counts only if this script made it, or a person accepted it at init. No label is
// proof of that, because who makes a Namespace writes its labels. Its UID is.
const claimFunction = `claim() { # claim ADMIN-KUBECONFIG RECORD ACCEPTED-UID
	uid=$($kubectl --kubeconfig "$1" get namespace fenced --ignore-not-found -o 'jsonpath={.metadata.uid}')
	if [ -z "$uid" ]; then
		uid=$($kubectl --kubeconfig "$1" create namespace fenced -o 'jsonpath={.metadata.uid}')
	elif [ "$uid" != "$3" ] && { [ ! -e "$2" ] || [ "$uid" != "$(cat "$2")" ]; }; then
		echo "error: the namespace fenced exists, and this script did not make it: $PWD/$2 does not have its UID $uid." >&2
		echo "Nothing was changed: whoever administers that namespace could take the rights of fenced. If another copy of this script" >&2
		echo "made it, copy its file $2 here; else look who may do what there, and run fencectl init with --existing-namespace." >&2
		exit 1
	fi
	echo "$uid" >"$2"
}
`

// mintFunction grants the rights on one API server, and writes the kubeconfig of fenced with a token of
// its ServiceAccount. The token is on no command line and in no environment: the shell itself writes it.
const mintFunction = `mint() { # mint ADMIN-KUBECONFIG MANIFEST FILE SERVER
	$kubectl --kubeconfig "$1" apply -f "$2"
	%[1]s
	server=${4:-$(field "$1" server)}
	case $server in
	https://127.* | https://localhost:* | https://\[::1\]*)
		echo "warning: $3 names the API server $server, which is right only on the host of that server; else run fencectl init with --server" >&2 ;;
	esac
	name=$(field "$1" tls-server-name)
	proxy=$(field "$1" proxy-url)
	ca=$(field "$1" certificate-authority-data)
	new=$3.new
	rm -f "$new"
	{
		printf 'apiVersion: v1\nkind: Config\nclusters:\n- name: fenced\n  cluster:\n    server: "%%s"\n' "$server"
		[ -z "$ca" ] || printf '    certificate-authority-data: "%%s"\n' "$ca"
		[ -z "$name" ] || printf '    tls-server-name: "%%s"\n' "$name"
		[ -z "$proxy" ] || printf '    proxy-url: "%%s"\n' "$proxy"
		printf 'users: [{name: fenced, user: {token: "%%s"}}]\n' "$token"
		printf 'contexts: [{name: fenced, context: {cluster: fenced, user: fenced}}]\ncurrent-context: fenced\n'
	} >"$new"
	if [ "$(id -u)" = 0 ] && chgrp fenced "$new" 2>/dev/null; then
		chmod 0640 "$new"
	fi
	if ! $kubectl --kubeconfig "$new" version >/dev/null; then
		rm -f "$new"
		echo "error: the API server $server does not take the new kubeconfig; $PWD/$3 is as it was" >&2
		exit 1
	fi
	mv -f "$new" "$3"
	new=
	echo "$PWD/$3: written; fenced reads it again when it changes"
}
`

// fromSecret waits for the token that Kubernetes makes for a Secret.
const fromSecret = `tries=0
	until token=$($kubectl --kubeconfig "$1" -n fenced get secret fenced-token -o 'go-template={{with .data.token}}{{. | base64decode}}{{end}}') && [ -n "$token" ]; do
		tries=$((tries + 1))
		if [ $tries -ge 60 ]; then
			echo "error: the Secret fenced-token in the namespace fenced got no token in a minute; is kube-controller-manager running?" >&2
			exit 1
		fi
		sleep 1
	done`

// fromRequest asks for a token that expires.
const fromRequest = `token=$($kubectl --kubeconfig "$1" -n fenced create token fenced --duration %ds)`

// mintScript is the script that an administrator runs once, and again to rotate the token.
func (s *Survey) mintScript(o *Options) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `#!/bin/sh
# Grants fenced its rights in the cluster %s, and writes its kubeconfig. Run it as an administrator of the cluster, where kubectl
# is: sh %s [%s]. With KUBECTL="k3s kubectl" it uses the kubectl of k3s.
%s
# shellcheck disable=SC2086 # $kubectl may be several words
set -eu
umask 077
kubectl="${KUBECTL:-kubectl} --request-timeout=30s"
from=$PWD new=
cd "$(dirname "$0")"
trap '[ -z "$new" ] || rm -f "$new"' EXIT # it holds a token
trap 'exit 1' HUP INT TERM

absolute() { # absolute FILE: also for who gave it where the script was called
	case $1 in /*) echo "$1" ;; *) echo "$from/$1" ;; esac
}

field() { # field KUBECONFIG KEY: of the cluster of the current context
	$kubectl --kubeconfig "$1" config view --raw --minify --flatten -o "jsonpath={.clusters[0].cluster.$2}"
}

`, s.Cluster, s.script(), usage(s.Apart()), rotation(o))
	get := fromSecret
	if o.TokenDuration > 0 {
		get = fmt.Sprintf(fromRequest, int64(o.TokenDuration.Seconds()))
	}
	b.WriteString(claimFunction + "\n")
	fmt.Fprintf(&b, mintFunction, get)
	s.mintCalls(&b, o)
	return []byte(b.String())
}

// mintCalls are the calls of the functions, for each API server. Both Namespaces are claimed before anything is granted.
func (s *Survey) mintCalls(b *strings.Builder, o *Options) {
	fmt.Fprintf(b, "\nadmin=$(absolute \"${1:-%s}\")\n", parameter(o.Request.Kubeconfig))
	if s.Apart() {
		fmt.Fprintf(b, "manager=$(absolute \"${2:-%s}\")\n", parameter(o.Request.Management.Kubeconfig))
	}
	for i, admin := range []string{"admin", "manager"}[:len(s.Servers)] {
		accepted := ""
		if o.ExistingNamespace {
			accepted = s.Servers[i].Namespace
		}
		fmt.Fprintf(b, "claim \"$%s\" %s %s\n", admin, s.NamespaceRecord(i), shellWord(accepted))
	}
	fmt.Fprintf(b, "mint \"$admin\" %s %s %s\n", s.manifest(), s.kubeconfig(), shellWord(o.Server))
	if s.Apart() {
		fmt.Fprintf(b, "mint \"$manager\" %s %s ''\n", s.managementManifest(), s.managementKubeconfig())
	}
}

func usage(apart bool) string {
	if apart {
		return "ADMIN-KUBECONFIG [ADMIN-KUBECONFIG-OF-THE-MANAGEMENT-CLUSTER]"
	}
	return "ADMIN-KUBECONFIG"
}

// rotation says in comments how the token is replaced.
func rotation(o *Options) string {
	if o.TokenDuration > 0 {
		return "# The token expires after " + o.TokenDuration.String() + ", or sooner if the API server allows less: without one fenced can fence nothing. To rotate it\n" +
			"# run this again in good time, for example from a timer."
	}
	return "# The token does not expire, so that fencing does not stop on a day that nobody noted. To rotate it, delete the Secret\n" +
		"# (kubectl -n " + Account + " delete secret " + tokenSecret + "), which makes the old token void, and run this again at once."
}

// shellWord is a text as one word of the shell, whatever is in it.
func shellWord(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// parameter is a path as the default inside of "${1:-PATH}".
func parameter(path string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`", "}", `\}`).Replace(path)
}

// Step is one thing to do next: what, and the command for it.
type Step struct {
	Do      string `json:"do"`
	Command string `json:"command"`
}

// Next is what a person does after init.
func (s *Survey) Next(o *Options) []Step {
	dir := strings.TrimSuffix(o.Dir, "/")
	steps := []Step{{"Grant the rights and write the kubeconfig of fenced (needs kubectl; on another host copy the directory there and the kubeconfig back)",
		"sudo sh " + dir + "/" + s.script()}}
	if missing := s.withoutBMC(o); missing > 0 {
		steps = append(steps, Step{"Fill in the BMCs that are missing (" + strconv.Itoa(missing) + ")", "sudo vi " + dir + "/hosts.d/" + s.Cluster + ".yaml"})
	}
	if len(o.BMCs) > 0 || s.withoutBMC(o) > 0 { // then hosts.d names its file
		steps = append(steps, Step{"Store the password of the BMCs: type it, then Ctrl-D", "sudo install -g fenced -m 0640 /dev/stdin " + dir + "/credentials/bmc"})
	}
	enroll := s.toEnroll(o)
	check, start := "sudo fenced --check-config", "sudo systemctl enable --now fenced"
	if dir != "/etc/fenced" {
		check += " --config " + dir + "/fenced.yaml"
		start = "sudo cp -RTi " + dir + " /etc/fenced && " + start
	}
	steps = append(steps, Step{"Check the files", check}, Step{"Start fenced; it looks, and begins nothing", start})
	if len(enroll) > 0 {
		steps = append(steps, Step{"The firmware of " + strings.Join(enroll, ", ") + " has no UUID of its own, so nothing shows which BMC is whose: check it on site, then enroll each",
			"sudo fencectl bmc enroll " + enroll[0] + ` --reason "checked in the rack"`})
	}
	if o.Rights == RightsObserve {
		return append(steps, Step{"See what fenced sees. With these rights it can fence nothing: before you arm it, run init with --rights evaluate --force, put back what you changed in the files (the old ones are beside them, as *.old), and do step 1 again",
			"sudo fencectl status -o wide"})
	}
	return append(steps,
		Step{"Ask every gate and the BMC of one node; this changes nothing", "sudo fencectl fence " + s.firstNode(o) + " --reason test --dry-run"},
		Step{"When all is as you want it, arm the cluster", `sudo fencectl arm --reason "tested"`})
}

// firstNode is the Node for the first dry run: a worker with a BMC on which nobody else would act, if there is one.
func (s *Survey) firstNode(o *Options) string {
	found := "NODE"
	for _, n := range s.Nodes {
		_, named := o.BMCs[n.Name]
		switch {
		case n.ControlPlane:
		case n.Ready && n.Asked && n.Contested == "" && (named || n.BMC != ""):
			return n.Name
		case found == "NODE":
			found = n.Name
		}
	}
	return found
}

// toEnroll are the Nodes with a BMC whose UUID cannot identify their machine.
func (s *Survey) toEnroll(o *Options) (names []string) {
	for _, n := range s.Nodes {
		if _, named := o.BMCs[n.Name]; (named || n.BMC != "") && n.UUID != "" && !bmc.UsableUUID(n.UUID) {
			names = append(names, n.Name)
		}
	}
	return names
}

// withoutBMC counts the hosts that fenced could not fence.
func (s *Survey) withoutBMC(o *Options) (n int) {
	for _, node := range s.Nodes {
		if _, named := o.BMCs[node.Name]; !named && node.BMC == "" {
			n++
		}
	}
	return n
}
