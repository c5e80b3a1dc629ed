package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

// about is what an order is about: a NODE, or with --machine a Machine, which may have no
// Node.
type about struct{ machine string }

func (a *about) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.machine, "machine", "", "NAMESPACE/NAME of a Machine, in place of NODE")
}

// args takes NODE, or nothing beside --machine.
func (a *about) args(cmd *cobra.Command, args []string) error {
	if !cmd.Flags().Changed("machine") {
		return exactArgs("NODE")(cmd, args)
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
	if a.machine != "" {
		return a.machine
	}
	return args[0]
}

// typed is the name as it was typed on the command line.
func (a about) typed(args []string) string {
	if a.machine != "" {
		return "--machine " + a.machine
	}
	return args[0]
}

// of fills in what the order is about.
func (a about) of(o api.Order, args []string) api.Order {
	if o.Machine = a.machine; a.machine == "" {
		o.Node = args[0]
	}
	return o
}

// nameOf says what a person types to confirm an order.
func nameOf(o api.Order) string {
	if o.Machine != "" {
		return "the Machine's NAMESPACE/NAME"
	}
	return "the node's name"
}

// asTyped is the target of an order as a command line names it.
func asTyped(o api.Order) string {
	return about{o.Machine}.typed([]string{o.Node}) + inCluster(o.Cluster)
}

// inCluster is the flag that names a cluster; "" for none.
func inCluster(cluster string) string {
	if cluster == "" {
		return ""
	}
	return " --cluster " + cluster
}
