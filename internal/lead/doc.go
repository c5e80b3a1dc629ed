// Package lead says whether this instance may act on a cluster, and for how long.
//
// Three things have a say. The store names one owner for each cluster, and compares the
// epoch of that ownership in each write (a fencing token). A BMC compares nothing, so the
// claim to the cluster ends at a time, and no destructive action lasts beyond it. Another
// installation has another store, so the cluster itself holds a Lease that names who
// acts. // I19, I22
//
// The package also counts the runs in flight over all clusters, in slots of the
// store. // I11
package lead
