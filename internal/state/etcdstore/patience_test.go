package etcdstore

import "time"

// On a busy machine an answer of etcd, or an election, may take many seconds.
func init() { callTimeout = 30 * time.Second }
