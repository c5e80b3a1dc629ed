package ipmisim

import (
	"math/rand/v2"
	"time"
)

// Network is how badly a Relay's network carries what its filter lets through.
// The zero value is the perfect one.
type Network struct {
	// Delay is added to each round trip, half of it each way, and up to Jitter
	// more to each datagram.
	Delay, Jitter time.Duration
	// Loss, Double and Reorder are how likely a datagram is lost, arrives twice, or
	// is overtaken by the next one of its direction; between 0 and 1.
	Loss, Double, Reorder float64
	// Seed makes two relays with the same traffic behave alike.
	Seed uint64
}

// Network makes the relay's network as n from now on.
func (r *Relay) Network(n Network) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.network = &network{Network: n, dice: rand.New(rand.NewPCG(n.Seed, n.Seed))}
}

// Delay adds d to each round trip, half of it each way.
func (r *Relay) Delay(d time.Duration) { r.Network(Network{Delay: d}) }

// network is a Network with its memory.
type network struct {
	Network
	dice *rand.Rand
	held map[bool]Datagram // those that wait to be overtaken, by direction
}

// carry gives d to the network. The relay is locked.
func (r *Relay) carry(d Datagram) {
	n := r.network
	if n == nil {
		r.send(d)
		return
	}
	for _, d := range n.arriving(d) {
		wait := n.Delay / 2
		if n.Jitter > 0 {
			wait += time.Duration(n.dice.Int64N(int64(n.Jitter)))
		}
		if wait == 0 {
			r.send(d)
			continue
		}
		time.AfterFunc(wait, func() { r.Send(d) })
	}
}

// arriving is what becomes of d: nothing, d, d twice, d and one it overtook.
func (n *network) arriving(d Datagram) []Datagram {
	if n.dice.Float64() < n.Loss {
		return nil
	}
	out := []Datagram{d}
	if n.dice.Float64() < n.Double {
		out = append(out, d)
	}
	if late, waiting := n.held[d.FromBMC]; waiting {
		delete(n.held, d.FromBMC)
		return append(out, late)
	}
	if n.dice.Float64() < n.Reorder {
		if n.held == nil {
			n.held = map[bool]Datagram{}
		}
		n.held[d.FromBMC] = d
		return out[1:]
	}
	return out
}
