// Package lead decides whether this instance may act on a cluster, and for how long.
//
// Three mechanisms decide that. The store names one owner for each cluster, and compares the epoch
// of that ownership in each write (a fencing token). A BMC compares nothing, so the claim to the
// cluster ends at a time, and no destructive action lasts longer. Another installation has another
// store, so a Lease in the cluster itself names the installation that acts. // I19, I22
//
// The package also counts the runs in flight over all clusters, in slots of the store. // I11
package lead
