package main

import (
	"cmp"

	"github.com/fenced/fenced/internal/api"
)

// requestTable is the remediation requests for which something is left to do.
func (c *cli) requestTable(st api.Status) *table {
	t := newTable("CLUSTER", "REQUEST", "NODE", "PHASE", "RUN", "REASON")
	if c.output == "wide" {
		t.head = append(t.head, "FINALIZER", "MESSAGE")
	}
	for _, k := range st.Clusters {
		for _, q := range k.Requests {
			row := []any{k.Name, checkName(q.Kind, q.Namespace, q.Name), orDash(cmp.Or(q.Node, q.Machine)), phaseCell(q.Phase), orDash(q.Run), orDash(q.Reason)}
			if c.output == "wide" {
				row = append(row, yesNo(q.Finalizer), orDash(q.Message))
			}
			t.add(row...)
		}
		t.addMore(k.Name, k.RequestsMore)
	}
	return t
}

func phaseCell(phase string) cell {
	if phase == "Held" {
		return cell{text: phase, color: red}
	}
	return cell{text: phase, color: yellow}
}
