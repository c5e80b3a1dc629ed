// Command fenced is the daemon that power-fences dead Kubernetes nodes and
// brings them back. It is started by systemd and driven with fencectl.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/fenced/fenced/internal/config"
)

// version and revision are set by the linker. Where a package is built, there is no git that Go could ask.
var version, revision = "development", ""

// sourceRevision is the commit of the source, with "-modified" if the tree had other changes; "unknown" if neither the linker nor Go knows it.
func sourceRevision() string {
	settings := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	commit := cmp.Or(revision, settings["vcs.revision"], "unknown")
	if revision == "" && settings["vcs.modified"] == "true" {
		commit += "-modified"
	}
	return commit
}

// The exit statuses, as fenced(8) lists them.
const (
	exitOK      = 0
	exitRunTime = 1
	exitUsage   = 2
	exitConfig  = 78 // EX_CONFIG: systemd does not restart on it
)

// gcPercent trades a little CPU for memory: most of what the daemon allocates is
// what the API server sent, dropped as soon as it is trimmed. GOGC overrules it.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(runDaemon(os.Args[1:], os.Stdout, os.Stderr))
}

func runDaemon(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("fenced", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("config", config.DefaultFile, "configuration file; conf.d/*.yaml beside it is merged over it")
	check := flags.Bool("check-config", false, "check the configuration files and exit")
	flags.BoolVar(check, "t", false, "short for --check-config")
	reload := flags.Bool("reload", false, "check the configuration files, make the daemon load them, and wait for the result; systemctl reload runs this")
	var m move
	flags.StringVar(&m.export, "export", "", "write the whole state to this new file and exit; with state.engine bbolt, stop the daemon first")
	flags.StringVar(&m.from, "import", "", "read such a file into an empty state and exit; stop the daemon first")
	look := flags.Bool("survey", false, "used by fencectl init: read from standard input which cluster to look at, and print what is there; changes nothing")
	show := flags.Bool("version", false, "print the version and exit")
	var set []string
	flags.Func("set", "override one key, for example --set guards.quietPeriod=0s (repeatable)", func(key string) error {
		set = append(set, key)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	switch {
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "fenced: unexpected argument %q\nhint: fencectl is the tool for people; fenced takes only flags\n", flags.Arg(0))
		return exitUsage
	case m.export != "" && m.from != "":
		fmt.Fprintln(stderr, "fenced: --export and --import exclude each other")
		return exitUsage
	case *show:
		fmt.Fprintln(stdout, "fenced", version)
		return exitOK
	case *look:
		if err := runSurvey(stdout); err != nil {
			fmt.Fprintf(stderr, "fenced: %v\n", err)
			return exitRunTime
		}
		return exitOK
	}
	more := checkPolicies
	if *check || *reload {
		more = checkRestart
	}
	checked, err := config.CheckAndRead(*file, config.Hosts{}, more, set...)
	if *check || *reload {
		for _, w := range checked.Warnings {
			fmt.Fprintln(stderr, "warning:", w)
		}
	}
	if !*check { // else the daemon says itself what it does without
		err = config.Whole(err)
	}
	if err != nil {
		fmt.Fprintf(stderr, "fenced: %v\n", err)
		return exitConfig
	}
	switch {
	case *check:
		fmt.Fprintln(stdout, "the configuration is good")
	case *reload:
		err = askReload(checked.Config, stdout)
	default:
		err = serve(*file, set, m, checked, stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "fenced: %v\n", err)
		if _, ok := errors.AsType[configError](err); ok {
			return exitConfig
		}
		return exitRunTime
	}
	return exitOK
}

// runSurvey is survey until SIGTERM or SIGINT.
func runSurvey(stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return survey(ctx, os.Stdin, stdout)
}

// serve runs the daemon, or moves its state, until SIGTERM or SIGINT; a second signal
// ends it at once.
func serve(file string, set []string, m move, checked config.Checked, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal finds the default action
	if m.export != "" || m.from != "" {
		return m.do(ctx, checked.Config.State, stdout)
	}
	reloads := make(chan os.Signal, 1) // one that waits is enough: it reads what the files say then
	signal.Notify(reloads, syscall.SIGHUP)
	defer signal.Stop(reloads)
	d, err := build(ctx, file, set, checked)
	if err != nil {
		return err
	}
	return d.run(ctx, reloads)
}

// configError is a problem that another start cannot cure: exit status 78.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }
