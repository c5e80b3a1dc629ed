package etcdstore

import (
	"crypto/sha256"
	"encoding/binary"
)

// best is the instance that a cluster falls to, among those that live: the one with the
// highest hash of both names. When an instance comes or goes, only the clusters that
// fall to it, or fell to it, change hands.
func best(instances []string, cluster string) string {
	var found string
	var highest uint64
	for _, name := range instances {
		score := weight(name, cluster)
		if found == "" || score > highest || score == highest && name < found {
			found, highest = name, score
		}
	}
	return found
}

func weight(instance, cluster string) uint64 {
	sum := sha256.Sum256([]byte(instance + "\x00" + cluster))
	return binary.BigEndian.Uint64(sum[:])
}
