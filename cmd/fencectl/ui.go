package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/page"
)

func newUICommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "ui",
		Short: "show all of it as a page in the browser, live and read-only",
		Long: `Serve a page on 127.0.0.1 of this machine that shows what fenced knows, live: clusters,
Nodes by zone and rack, open runs step by step, what is blocked and the command that
comes next, checks, BMCs; a page for each node and each run. It gives no orders.

Open the address that it prints. The address works once; after that only that browser
has access, until the command ends (Ctrl-C). The page reads with your rights, over the
same socket as every verb. With --cluster it shows that cluster alone.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.refuseUnknownCluster(cmd.Context(), "show the page"); err != nil {
				return err
			}
			err := page.Serve(cmd.Context(), c.client(), c.cluster, func(address string) error {
				return c.printValue(map[string]string{"address": address}, func() error {
					_, err := fmt.Fprintf(c.out, "Open this address in your browser. It works once; Ctrl-C ends the page.\n\n    %s\n\n", address)
					return err
				})
			})
			if err != nil {
				return requestError("show the page", err)
			}
			return nil
		},
	}
}
