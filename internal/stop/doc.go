// Package stop knows what people have stopped: a pause of one cluster or of all clusters, a
// hold of one Node, and the pause file. It also knows the quarantine in which the daemon
// itself puts a host that was fenced too often in a day. // I15, I23
//
// A stop binds from the moment of the order, whether or not the store saves it. It ends only
// when a person ends it, or when its time has passed by every clock that counts. If a record
// of a stop exists and cannot be read, everything is paused. // I20
package stop
