// Package run carries out one run. It looks at the BMC and at the cluster, asks remediate.Next
// what comes next, saves the answer, and acts, until the run ends. It does something
// destructive only if the record is durable, the look is fresh, and nothing forbids it. It
// checks all of that once more immediately before the action. // I1, I4, I19, I23, I24
package run
