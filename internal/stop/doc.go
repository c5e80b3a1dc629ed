// Package stop knows what must stand still because somebody said so: a pause of one
// cluster or of all, a hold of one Node, the pause file, and the quarantine in which the
// daemon itself puts a host that was fenced again and again. // I15, I23
//
// A stop binds from the moment of the order, whether or not the store takes it. It ends
// only when a person ends it, or when its time is over by every clock that has a say.
// Records that exist and cannot be read stop everything. // I20
package stop
