// Package run carries out one run: it looks at the BMC and the cluster, asks remediate.Next
// what comes next, saves the answer, and acts, until the run ends. What is destructive is
// done only on a record that is durable, on a look that is fresh, and while nothing
// forbids it; all of that is asked once more at the last moment. // I1, I4, I19, I23, I24
package run
