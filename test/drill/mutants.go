package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// mutant is fenced with a rule broken: one text of one file is another one.
type mutant struct {
	rule, file, is, becomes string
	says                    string // what the checker says of it
}

var mutants = []mutant{
	{
		"a claim ends with its session", "internal/state/etcdstore/ownership.go",
		`		o.onClaim(ctx, state.Claim{
			Cluster: cluster, Epoch: uint64(epoch), Until: o.sess.Until,
			Store: claimStore{o.store, token},
		})`,
		`		o.onClaim(context.WithoutCancel(ctx), state.Claim{
			Cluster: cluster, Epoch: uint64(epoch), Until: func() time.Time { return time.Now().Add(time.Hour) },
			Store: o.store,
		})`,
		" owns the cluster",
	},
	{
		"a new owner waits until the last command of a lost one has ended", "internal/state/etcdstore/ownership.go",
		"	delay := o.TakeoverDelay\n", "	delay := 0 * o.TakeoverDelay\n", "and the owner before it was lost",
	},
	{
		"a host is off when its BMC says so", "internal/ipmi/command.go", "		state = bmc.On\n", "		state = bmc.Off\n", "is deleted, and the host is on",
	},
	{
		"a request that nobody acknowledged is not delivered later", "internal/k8swatch/client/connect.go",
		`base.UserAgent, base.Dial = qps, burst, "fenced", dial`, `base.UserAgent = qps, burst, "fenced"`, "is deleted, and the host is on",
	},
	{
		"only the Node that was decided on is deleted", "internal/k8swatch/write/act.go",
		"		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &b.ResourceVersion},\n",
		"		Preconditions: &metav1.Preconditions{UID: &uid},\n", "without the UID and the version",
	},
	{
		"an owner goes on with the runs that are open", "internal/lead/lead.go", "	l.opt.Cluster.Resume()\n", "", "never comes back",
	},
}

// build builds the daemon of a mutant; nothing of it is in the tree.
func (m mutant) build(ctx context.Context, dir, out string) error {
	root, err := rig.Root()
	if err != nil {
		return err
	}
	file := filepath.Join(root, m.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), m.is); n != 1 {
		return fmt.Errorf("%s has the text that this mutant changes %d times", m.file, n)
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	names, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(changed, []byte(strings.Replace(string(text), m.is, m.becomes, 1)), 0o600), os.WriteFile(overlay, names, 0o600)); err != nil {
		return err
	}
	return scene.BuildChanged(ctx, out, overlay)
}

// mutantSeeds is how many schedules may pass until a mutant is noticed.
const mutantSeeds = 120

// noticeMutants plays each mutant until the checker says what it should, and returns an error if it never does.
func noticeMutants(ctx context.Context, dir string, first uint64, side int, w io.Writer) error {
	fmt.Fprintf(w, "| fenced without this rule | noticed after so many schedules, by |\n|---|---|\n")
	for _, m := range mutants {
		program := filepath.Join(dir, "mutant")
		if err := m.build(ctx, dir, program); err != nil {
			return fmt.Errorf("mutant %q: %w", m.rule, err)
		}
		found := ""
		results := playAll(ctx, program, dir, first, mutantSeeds, side, func(r result) bool {
			if r.Error != "" {
				tell(os.Stderr, r)
			}
			for _, line := range r.Wrong {
				if found == "" && strings.Contains(line, m.says) {
					found = line
				}
			}
			return found == ""
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if found == "" {
			return fmt.Errorf("mutant %q is not noticed in %d schedules from %d", m.rule, len(results), first)
		}
		fmt.Fprintf(w, "| %s | %d: %s |\n", m.rule, len(results), found)
	}
	return nil
}
