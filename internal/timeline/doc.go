// Package timeline keeps what a timeline shows beside the steps of runs: orders of people, refusals
// and failures. What it keeps is limited. The audit log has everything.
package timeline
