package etcdstore

import (
	"crypto/sha256"
	"encoding/binary"
)

// preferred returns the instance that should own a cluster: the one with the highest score
// (rendezvous hashing). When an instance starts or stops, only the clusters for which it has
// the highest score change their owner. preferred returns "" if there is no instance.
func preferred(instances []string, cluster string) string {
	var found string
	var highest uint64
	for _, name := range instances {
		points := score(name, cluster)
		if found == "" || points > highest || points == highest && name < found {
			found, highest = name, points
		}
	}
	return found
}

func score(instance, cluster string) uint64 {
	sum := sha256.Sum256([]byte(instance + "\x00" + cluster))
	return binary.BigEndian.Uint64(sum[:])
}
