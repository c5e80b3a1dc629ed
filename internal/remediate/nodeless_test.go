package remediate

import "time"

// nodelessWorlds are the searches of Machines without a Node.
var nodelessWorlds = []variant{
	{name: "no Node", states: 10_600, nodeless: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "no Node, Metal3", nodeless: true, bmh: true, faults: join(crashes, power), budget: 2, want: "Done"},
	{name: "no Node, never joins", nodeless: true, badBoots: 9, faults: join(engine, power), budget: 1, want: "Reprovisioned AttemptsExhausted"},
	{name: "no Node, never joins, no fallback", nodeless: true, badBoots: 9, noReplace: true, faults: join(engine, power), budget: 1, want: "Held AttemptsExhausted"},
	{name: "waits: no Node", retry: 200 * time.Millisecond, nodeless: true, badBoots: 3, noReplace: true, faults: join(crashes, []fault{slowBoot, unfenceOrder}), budget: 1, want: "Done"},
}
