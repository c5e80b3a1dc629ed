package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
)

// orderVerb is one row of the table of orders: a verb that only sends its order and, with --wait,
// waits for the run.
type orderVerb struct {
	verb wire.Verb
	was  string // another name of it, which scripts use
	arg  string // NODE or RUN; "" = it is about a cluster, or all
	// machine: --machine may stand in place of NODE; group: so may labels.
	machine, group bool
	// command has Use, Short and Long.
	command *cobra.Command
	forHelp string // help of --for; "" = the verb has no end of its own
	asIs    bool   // it has --as-is and --yes
	goal    *goal  // what --wait waits for; nil = there is no run
}

// orderVerbs is the table. Orders that first show their effect and ask for the name are in
// fence.go and bmc.go.
func orderVerbs() []orderVerb {
	return []orderVerb{
		{verb: wire.Hold, arg: "NODE", machine: true, group: true, forHelp: "end by itself after this time", command: &cobra.Command{
			Use: "hold NODE|RUN|--machine NAMESPACE/NAME|GROUP --reason WHY [--for 4h|--until 18:00]",
			Example: lines(
				`fencectl hold worker-3 --reason "firmware update" --for 4h`,
				`fencectl hold worker-3 --reason "on loan to the lab" --for 2d`,
				`fencectl hold --all-in-rack r7 --reason "power feed replaced" --until 18:00`,
				`fencectl hold --selector pool=storage,team=infra --reason "disk shelves" --for 2h --dry-run`,
			),
			Short: "prevent one node, or those of a rack or a zone, from being fenced",
			Long: `Prevent one node from being fenced, by checks and by people, until fencectl release
or for the time of --for or --until. If a run on the node has not isolated its Node
yet, it powers the host on again and ends Aborted. If the Node is isolated already,
the run completes, so that no host stays off.

The hold takes effect at once. If fenced cannot save it, the answer says so, and
fenced tries again. A new hold never shortens an existing one; release that first.

GROUP is one of --selector KEY=VALUE,..., --zone ZONE and --all-in-rack RACK. The order
then holds each Node that has the labels now, even one that fenced has deleted, with one
end for all. A Node that gets the labels or joins later is not held: give the order
again. A Machine without a Node has no labels; hold it by its name. The answer lists
every Node; --dry-run lists them and changes nothing. If no Node has the labels, the
order is refused.`,
		}},
		{verb: wire.Release, arg: "NODE", machine: true, group: true, command: &cobra.Command{
			SuggestFor: []string{"unhold"},
			Use:        "release NODE|RUN|--machine NAMESPACE/NAME|GROUP --reason WHY",
			Example: lines(
				`fencectl release worker-3 --reason "firmware updated"`,
				`fencectl release --machine openshift-machine-api/worker-3-abcde --reason "back from the lab"`,
				`fencectl release --all-in-rack r7 --reason "power feed replaced"`,
			),
			Short: "end a node's hold, or its quarantine",
			Long: `End the hold of a node, or the quarantine of a host that was fenced too often; its
earlier runs no longer count. To end the freeze of a BMC that reported a false Off,
use fencectl bmc unfreeze.

GROUP is one of --selector KEY=VALUE,..., --zone ZONE and --all-in-rack RACK. The order
then ends the holds that fencectl hold began with the same labels, even on Nodes whose
labels have changed since. A Node that somebody held by its name, or with other
labels, stays held, and one in quarantine stays there: the answer says which, and why.
--dry-run lists them and changes nothing.`,
		}},
		{verb: wire.Unfence, arg: "NODE", machine: true, goal: &goal{unfence: true}, command: &cobra.Command{
			Use: "unfence NODE|RUN|--machine NAMESPACE/NAME --reason WHY",
			Example: lines(
				`fencectl unfence worker-3 --reason "disk replaced"`,
				`fencectl unfence worker-3 --reason "disk replaced" --wait --timeout 20m`,
			),
			Short: "bring back a host whose run is Waiting or Held, or that was fenced with --off-only",
			Long: `Power the host on again, wait for its Node and restore it. This is for a host that
was fenced with --off-only, or whose run is Waiting or Held. If the Node is not
isolated yet, the run stops.

With --wait the exit status is 0 if the run ended, 1 if it is Held, and 6 after
--timeout. It also waits for a Waiting run: give --timeout to bound that.`,
		}},
		{verb: wire.Abort, arg: "RUN", machine: true, asIs: true, goal: &goal{unfence: true}, command: &cobra.Command{
			Use: "abort RUN|NODE|--machine NAMESPACE/NAME --reason WHY",
			Example: lines(
				`fencectl abort worker-3 --reason "wrong node" --wait`,
				`fencectl abort mi42k0z1-4f9a1c --as-is --reason "the host is scrapped"`,
			),
			Short: "stop a run and bring its host back",
			Long: `Stop a run. If its Node is not isolated yet, fenced powers the host on again and the
run ends Aborted. If the Node is isolated, fenced brings the host and its Node back
and does nothing else. A Waiting or Held run continues as with fencectl unfence.

With --as-is (admin) a Waiting or Held run ends at once. The host stays in its present
state, and fenced does not bring it back.

RUN may also be the record of a request to another remediator, as explain names it:
with --as-is fenced ends the record, leaves the object of the request as it is, and
lets others act on the target once that object is gone. This is refused while the
object exists, or while fenced cannot tell; --yes ends the record nevertheless: first
make sure that the other remediator does not switch the host any more.

With --wait the exit status is 0 if the run ended, 1 if it is Held, and 6 after
--timeout. It also waits for a Waiting run: give --timeout to bound that.`,
		}},
		{verb: wire.Retry, arg: "RUN", machine: true, goal: &goal{fromHeld: true}, command: &cobra.Command{
			Use: "retry RUN|NODE|--machine NAMESPACE/NAME --reason WHY",
			Example: lines(
				`fencectl retry worker-3 --reason "BMC password corrected"`,
				`fencectl retry mi42k0z1-4f9a1c --reason "power supply replaced" --wait`,
			),
			Short: "continue a run that is Waiting or Held, or that rests before its next attempt",
			Long: `Continue a run after you repaired what stopped it. A run that rests before its next
attempt continues at once. A Waiting or Held run continues at step 1, where fenced
asks every gate again, or at step 3 if its Node is isolated already. If it has used up
its attempts, it gets one more. The order is refused while the run could not continue.

With --wait the exit status is 0 if the run is done, 1 if it is Held again, 3 if a
gate aborted it, and 6 after --timeout. It also waits for a Waiting run: give --timeout
to bound that.`,
		}},
		{verb: wire.Pause, forHelp: "resume by itself after this time", command: &cobra.Command{
			Use: "pause --reason WHY [--for 2h|--until 18:00] [--cluster NAME]",
			Example: lines(
				`fencectl pause --reason "switch upgrade" --for 2h`,
				`fencectl pause --cluster prod --reason "storage outage"`,
			),
			Short: "stop fencing, in one cluster or in all",
			Long: `Start no new runs, in one cluster or in all. A run whose Node is not isolated yet
powers its host on again and ends Aborted. A run whose Node is isolated already
completes, so that no host stays off. With --for the pause ends by itself, and the
quiet period follows.

The pause takes effect at once. If fenced cannot save it, the answer says so, and
fenced tries again. A new pause never shortens an existing one. If this socket does
not work, use systemctl start fenced-pause.`,
		}},
		{verb: wire.Resume, command: &cobra.Command{
			SuggestFor: []string{"unpause"},
			Use:        "resume --reason WHY [--cluster NAME]",
			Example: lines(
				`fencectl resume --reason "switches upgraded"`,
				`fencectl resume --cluster prod --reason "storage is back"`,
			),
			Short: "resume after a pause",
			Long: `Resume after a pause. New fencing starts after the quiet period. If nothing is paused,
nothing changes. If the file of control.pauseFile exists, fenced stays paused until
it is removed: run systemctl start fenced-resume.`,
		}},
		{verb: wire.Disarm, command: &cobra.Command{
			SuggestFor: []string{"unarm"},
			Use:        "disarm --reason WHY [--cluster NAME]",
			Example: lines(
				`fencectl disarm --reason "test failed"`,
				`fencectl disarm --cluster prod --reason "migration"`,
			),
			Short: "undo arm (admin)",
			Long: `Undo arm in a cluster in mode observe: fenced evaluates and explains, but begins no
run by itself. Open runs send no further Off, delete no Machine, and bring their hosts
back. Only runs that an admin ordered go on; fencectl abort RUN ends one.

In mode evaluate or respond disarm stops nothing and is refused (exit 3). To stop
fencing there, use fencectl pause, or write mode: observe and restart fenced.`,
		}},
		{verb: wire.UnfreezeBMC, was: "release", arg: "NODE", machine: true, command: &cobra.Command{
			Use:   "unfreeze NODE|--machine NAMESPACE/NAME --reason WHY",
			Short: "unfreeze a host whose BMC reported Off while it was on (admin)",
			Long: `Unfreeze a host whose BMC reported Off while the host was running. When the last
such host of a model and firmware is unfrozen, all hosts of that model and firmware
are. Repair the BMC first: after a false Off, two machines can write to one disk.`,
		}},
	}
}

// addOrderVerbs makes a command of each row: bmc/unfreeze below bmc. Help does not show the other name of a verb.
func addOrderVerbs(c *cli, root *cobra.Command) {
	for _, v := range orderVerbs() {
		parent := root
		if above, _, nested := strings.Cut(string(v.verb), "/"); nested {
			for _, sub := range root.Commands() {
				if sub.Name() == above {
					parent = sub
				}
			}
		}
		other := *v.command
		parent.AddCommand(v.make(c))
		if v.was != "" {
			other.Use, other.Hidden = strings.Replace(other.Use, other.Name(), v.was, 1), true
			v.command = &other
			parent.AddCommand(v.make(c))
		}
	}
}

// orderFlags are the flags of the rows.
type orderFlags struct {
	waitFlags
	about
	group  groupFlags
	reason string
	asIs   bool
	yes    bool
	length time.Duration
	until  string
}

func (v orderVerb) make(c *cli) *cobra.Command {
	var f orderFlags
	cmd := v.command
	cmd.Args = exactArgs(strings.Fields(v.arg)...)
	if v.machine {
		f.about.flags(cmd)
		cmd.Args = f.args
	}
	if v.group {
		f.group.flags(cmd)
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if f.group.used(cmd) {
				return f.group.args(cmd, args)
			}
			return f.args(cmd, args)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return v.run(cmd, c, args, f) }
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the records (mandatory)")
	if v.forHelp != "" {
		cmd.Flags().Var(days{&f.length}, "for", v.forHelp+", like 2d or 4h")
		cmd.Flags().StringVar(&f.until, "until", "", strings.Replace(v.forHelp, "after", "at", 1)+", like 18:00 or 2026-01-31T18:00:00Z")
	}
	if v.asIs {
		cmd.Flags().BoolVar(&f.asIs, "as-is", false, "end a Waiting or Held run and leave the host in its present state (admin)")
		cmd.Flags().BoolVar(&f.yes, "yes", false, "with --as-is: give up a record although another remediator may be at work (admin)")
	}
	if v.goal != nil {
		f.waitFlags.flags(cmd)
	}
	return cmd
}

func (v orderVerb) run(cmd *cobra.Command, c *cli, args []string, f orderFlags) error {
	shown := args
	switch {
	case f.group.IsGiven():
		shown = []string{f.group.typed()}
	case f.group.dryRun:
		return usageError(errors.New("--dry-run is for --selector, --zone or --all-in-rack"), cmd.CommandPath()+" --zone ZONE --dry-run")
	case f.machine != "":
		shown = []string{f.typed(args)}
	}
	line := strings.Join(append([]string{cmd.CommandPath()}, shown...), " ") + inCluster(c.cluster)
	if err := needReason(f.reason, line); err != nil {
		return err
	}
	if err := checkFor(f.length, cmd.Flags().Changed("for"), line); err != nil {
		return err
	}
	if cmd.Flags().Changed("until") {
		length, err := parseUntil(f.until, time.Now())
		if err == nil && f.length > 0 {
			err = errors.New("--for and --until both say when it ends")
		}
		if err != nil {
			return usageError(err, line+" --until 18:00")
		}
		f.length = length
	}
	if err := f.validate(); err != nil {
		return err
	}
	o := wire.Order{Verb: v.verb, Cluster: c.cluster, Reason: f.reason, AsIs: f.asIs, Yes: f.yes, For: wire.Span(f.length)}
	switch {
	case f.group.IsGiven():
		o.Group, o.DryRun = f.group.Group, f.group.dryRun
	case v.arg == "NODE":
		o = f.of(o, args)
	case v.arg == "RUN": // or what it is on, which the daemon finds
		if o = f.of(o, args); o.Machine == "" {
			o.Node, o.Run = "", o.Node
		}
	}
	what := strings.Join(append([]string{cmd.Name()}, shown...), " ")
	return c.sendOrder(cmd.Context(), o, what, f.waitFlags, v.goal)
}

// sendOrder sends an order and, if asked, waits for its run.
func (c *cli) sendOrder(ctx context.Context, o wire.Order, what string, w waitFlags, g *goal) error {
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return requestError(what, err)
	}
	return c.showAndWait(ctx, w, rep, g)
}

// checkFor refuses --for 0: a typing error must not become a stop without an end.
func checkFor(length time.Duration, given bool, line string) error {
	if given && length <= 0 {
		return usageError(errors.New("--for is a time, like 2d, 4h or 30m"), line+" --for 4h")
	}
	return nil
}

// about is what an order is about: a name that the daemon resolves, of a Node or a run, or a Machine, which
// may have no Node: NAMESPACE/NAME, also with --machine.
type about struct{ machine string }

func (a *about) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.machine, "machine", "", "NAMESPACE/NAME of a Machine, in place of NODE")
}

// args takes NODE, or nothing beside --machine.
func (a *about) args(cmd *cobra.Command, args []string) error {
	if !cmd.Flags().Changed("machine") {
		return exactArgs("TARGET")(cmd, args)
	}
	if len(args) > 0 {
		return usageError(errors.New(cmd.Name()+" takes NODE or --machine, not both"), cmd.CommandPath()+" --machine NAMESPACE/NAME")
	}
	if err := api.CheckMachine(a.machine); err != nil {
		return usageOf(err)
	}
	return nil
}

// name is the NODE, or the NAMESPACE/NAME of the Machine.
func (a about) name(args []string) string {
	return cmp.Or(a.machineIn(args), strings.Join(args, ""))
}

// machineIn is the Machine that the command line names, "" for a Node or a run.
func (a about) machineIn(args []string) string {
	if a.machine == "" && strings.Contains(args[0], "/") {
		return args[0]
	}
	return a.machine
}

// typed is the name as it was typed on the command line.
func (a about) typed(args []string) string {
	if a.machine != "" {
		return "--machine " + a.machine
	}
	return args[0]
}

// of fills in what the order is about.
func (a about) of(o wire.Order, args []string) wire.Order {
	if o.Machine = a.machineIn(args); o.Machine == "" {
		o.Node = args[0]
	}
	return o
}

// nameOf says what a person types to confirm an order.
func nameOf(o wire.Order) string {
	if o.Machine != "" {
		return "the Machine's NAMESPACE/NAME"
	}
	return "the node's name"
}

// inCluster returns the flag that names a cluster, or an empty string for none.
func inCluster(cluster string) string {
	if cluster == "" {
		return ""
	}
	return " --cluster " + cluster
}

// needReason checks, before anything is sent, that there is a reason and that the daemon accepts it.
func needReason(reason, line string) error {
	if err := api.CheckReason(strings.TrimSpace(reason)); err != nil {
		return usageError(err, line+` --reason "disk fails, ticket 4711"`)
	}
	return nil
}

const day = 24 * time.Hour

// days is a flag for a duration that may begin with days: 2d, 1d12h, 90m.
type days struct{ d *time.Duration }

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
