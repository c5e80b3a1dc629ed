package policy

import (
	"iter"
	"slices"
)

// listing lists values by a key. Nearly every key has one value, and only the others have a slice: for a hundred thousand keys the slices would take
// more than the rest. A value is removed from a copy of its slice, because a caller may still go through it.
type listing[K, V comparable] struct {
	one     map[K]V
	several map[K][]V
}

func newListing[K, V comparable]() listing[K, V] { return listing[K, V]{map[K]V{}, map[K][]V{}} }

// of goes through the values of a key.
func (x listing[K, V]) of(key K) iter.Seq[V] {
	return func(yield func(V) bool) {
		if v, ok := x.one[key]; ok {
			yield(v)
			return
		}
		for _, v := range x.several[key] {
			if !yield(v) {
				return
			}
		}
	}
}

// len is how many values a key has.
func (x listing[K, V]) len(key K) int {
	if _, ok := x.one[key]; ok {
		return 1
	}
	return len(x.several[key])
}

// set replaces the values of a key.
func (x listing[K, V]) set(key K, list []V) {
	delete(x.one, key)
	delete(x.several, key)
	switch len(list) {
	case 0:
	case 1:
		x.one[key] = list[0]
	default:
		x.several[key] = list
	}
}

// add adds a value after the others.
func (x listing[K, V]) add(key K, v V) { x.put(key, v, func(_, _ V) int { return -1 }) }

// put adds a value at its place in the order.
func (x listing[K, V]) put(key K, v V, order func(a, b V) int) {
	list := x.several[key]
	if only, ok := x.one[key]; ok {
		list = []V{only}
	}
	at, _ := slices.BinarySearchFunc(list, v, order)
	x.set(key, slices.Insert(list, at, v))
}

// drop removes a value once.
func (x listing[K, V]) drop(key K, v V) {
	if only, ok := x.one[key]; ok {
		if only == v {
			delete(x.one, key)
		}
		return
	}
	list := x.several[key]
	if at := slices.Index(list, v); at >= 0 {
		x.set(key, slices.Concat(list[:at], list[at+1:]))
	}
}

// keep removes the values of a key that are not to stay.
func (x listing[K, V]) keep(key K, stays func(V) bool) {
	var list []V
	for v := range x.of(key) {
		if stays(v) {
			list = append(list, v)
		}
	}
	x.set(key, list)
}
