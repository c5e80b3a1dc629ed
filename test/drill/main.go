// Drill plays random schedules of partitions, delays and reboots against two bastions, and checks from outside what came of it: two
// daemons as they are shipped, an etcd of three members, an API server and simulated BMCs, each in a network namespace of its own, on one
// switch. nftables cuts and heals its links, in one direction or in both; daemons and members of etcd are killed with -9, stopped and
// started again; hosts hang, so that fencing is wanted.
//
//	main.go      the command: go run ./test/drill -seeds 200
//	schedule.go  what goes wrong, and when, by a seed
//	network.go   the namespaces, the switch and its rules
//	site.go      API server, hosts, bastions;  claims.go  who owns the cluster, by etcd
//	play.go      one seed: faults, and what they are done with
//	history.go   what happened, and the checker
//	mutants.go   fenced with a rule broken, which the checker must notice
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/scene"
)

// childEnv makes this program play the one seed that it names, in a network namespace of its own.
const childEnv = "FENCED_DRILL"

// ask is what the child is told.
type ask struct {
	Seed    uint64
	Program string
	Dir     string // where it makes the directory of its files
}

func main() {
	childMain()
	var seeds, side int
	var first uint64
	var mutants bool
	flag.IntVar(&seeds, "seeds", 200, "schedules to play")
	flag.Uint64Var(&first, "first", dice.Fresh(), "seed of the first; the others follow")
	flag.IntVar(&side, "side", 8, "schedules side by side")
	flag.BoolVar(&mutants, "mutants", true, "first show that fenced with a rule broken is noticed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if why := cannot(); why != "" {
		fmt.Println("drill: not played:", why)
		if os.Getenv("CI") == "true" { // else nobody would notice
			os.Exit(1)
		}
		return
	}
	if err := drill(ctx, first, seeds, side, mutants); err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		stop()
		os.Exit(1)
	}
}

// cannot returns what is missing here, or an empty string.
func cannot() string {
	for _, program := range []string{"ip", "tc", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			return err.Error() + "; make deps installs it"
		}
	}
	probe := exec.Command("ip", "link", "add", "probe", "type", "bridge")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if text, err := probe.CombinedOutput(); err != nil {
		return fmt.Sprintf("only root can make network namespaces, where that is allowed: %v %s", err, text)
	}
	return ""
}

// drill builds the daemon, and plays.
func drill(ctx context.Context, first uint64, seeds, side int, mutants bool) error {
	dir, err := os.MkdirTemp("", "fenced-drill-")
	if err != nil {
		return fmt.Errorf("make a directory for the programs: %w", err)
	}
	defer os.RemoveAll(dir)
	if mutants {
		if err := noticeMutants(ctx, dir, first, side, os.Stdout); err != nil {
			return err
		}
	}
	if seeds == 0 {
		return nil
	}
	programs, err := scene.Build(ctx, dir, false)
	if err != nil {
		return err
	}
	began := time.Now()
	results := playAll(ctx, programs.Fenced, dir, first, seeds, side, func(r result) bool {
		if r.Kept != "" { // dir goes, this stays
			if stays := filepath.Join(os.TempDir(), filepath.Base(r.Kept)); os.Rename(r.Kept, stays) == nil {
				r.Kept = stays
			}
		}
		tell(os.Stdout, r)
		return true
	})
	return report(os.Stdout, first, results, time.Since(began), side)
}

// playAll plays seeds side by side, until more returns false.
func playAll(ctx context.Context, program, dir string, first uint64, seeds, side int, more func(result) bool) (results []result) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan uint64)
	for range side {
		wg.Go(func() {
			for seed := range next {
				r := playApart(ctx, ask{seed, program, dir})
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				results = append(results, r)
				if !more(r) {
					stop()
				}
				mu.Unlock()
			}
		})
	}
	for i := range seeds {
		select {
		case <-ctx.Done():
		case next <- first + uint64(i):
		}
	}
	close(next)
	wg.Wait()
	return results
}

// playApart plays one seed in a process of its own, which is in a new network namespace: with it all that is in there goes.
func playApart(ctx context.Context, a ask) (r result) {
	told, err := json.Marshal(a)
	if err != nil {
		return result{Seed: a.Seed, Error: err.Error()}
	}
	self, err := os.Executable()
	if err != nil {
		return result{Seed: a.Seed, Error: err.Error()}
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+string(told)), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
		r.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() // also of all that it has started and seen ending
	}
	if err != nil {
		return result{Seed: a.Seed, Error: fmt.Sprintf("play: %v", err)}
	}
	return r
}

// childMain plays what the environment asks for, and ends; it does nothing if it asks for nothing.
func childMain() {
	told := os.Getenv(childEnv)
	if told == "" {
		return
	}
	var a ask
	err := json.Unmarshal([]byte(told), &a)
	if err == nil {
		os.Unsetenv(childEnv)
		out := bufio.NewWriter(os.Stdout)
		err = errors.Join(json.NewEncoder(out).Encode(play(context.Background(), a)), out.Flush())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// tell tells one result in a line, and what is wrong in more.
func tell(w io.Writer, r result) {
	if r.Error == "" && len(r.Wrong) == 0 {
		fmt.Fprintf(w, "seed %d: %d hung, %d commands, %d deletions, %d claims, back after %s\n", r.Seed, r.Hung, r.Commands, r.Deletions, r.Owners, r.Back.Round(time.Second))
		return
	}
	fmt.Fprintf(w, "seed %d: logs and history in %s\n", r.Seed, r.Kept)
	for _, line := range r.Schedule {
		fmt.Fprintf(w, "    %s\n", line)
	}
	for _, line := range r.Wrong {
		fmt.Fprintf(w, "  WRONG %s\n", line)
	}
	if r.Error != "" {
		fmt.Fprintf(w, "  not played: %s\n", r.Error)
	}
}

// report prints the table of a drill, and returns an error if something is wrong or was not played.
func report(w io.Writer, first uint64, results []result, took time.Duration, side int) error {
	var sum result
	var wrong, failed int
	var backs []time.Duration
	for _, r := range results {
		if r.Error != "" {
			failed++
			continue
		}
		if len(r.Wrong) > 0 {
			wrong++
		}
		sum.Hung, sum.Commands, sum.Deletions = sum.Hung+r.Hung, sum.Commands+r.Commands, sum.Deletions+r.Deletions
		sum.Owners, sum.Takeovers, sum.Switched = sum.Owners+r.Owners, sum.Takeovers+r.Takeovers, sum.Switched+r.Switched
		sum.CPU += r.CPU
		backs = append(backs, r.Back)
	}
	played := len(results) - failed
	if played == 0 {
		return errors.New("no schedule was played")
	}
	slices.Sort(backs)
	rows := [][2]string{
		{"schedules, seeds", fmt.Sprintf("%d, from %d", played, first)},
		{"side by side, time, schedules a minute", fmt.Sprintf("%d, %s, %.1f", side, took.Round(time.Second), float64(played)/took.Minutes())},
		{"processor time of a schedule", (sum.CPU / time.Duration(played)).Round(100 * time.Millisecond).String()},
		{"hosts that hung", strconv.Itoa(sum.Hung)},
		{"commands of bastions to BMCs", strconv.Itoa(sum.Commands)},
		{"Nodes deleted", strconv.Itoa(sum.Deletions)},
		{"claims, of which after an owner that was lost", fmt.Sprintf("%d, %d", sum.Owners, sum.Takeovers)},
		{"hosts with commands of both bastions", strconv.Itoa(sum.Switched)},
		{"back after the faults: median, longest", fmt.Sprintf("%s, %s", backs[len(backs)/2].Round(time.Second), backs[len(backs)-1].Round(time.Second))},
		{"schedules with violations", strconv.Itoa(wrong)},
	}
	fmt.Fprintf(w, "\n| two bastions, one cluster | |\n|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s |\n", r[0], r[1])
	}
	if wrong+failed > 0 {
		return fmt.Errorf("%d schedules have violations, and %d were not played", wrong, failed)
	}
	return nil
}
