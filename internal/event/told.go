package event

// Told is what was told last about one thing, so that it is told once until it changes. The zero
// value of V stands for nothing to tell: no error, no reason.
type Told[V comparable] struct{ last V }

// News stores what is to be told now, and returns whether it is news.
func (t *Told[V]) News(now V) bool {
	var nothing V
	was := t.last
	t.last = now
	return now != was && now != nothing
}

// ToldOf is Told for each of several things.
type ToldOf[K, V comparable] struct{ last map[K]V }

// News is Told.News about one of them.
func (t *ToldOf[K, V]) News(about K, now V) bool {
	told := Told[V]{t.last[about]}
	news := told.News(now)
	var nothing V
	switch {
	case now == nothing:
		delete(t.last, about)
	case t.last == nil:
		t.last = map[K]V{about: now}
	default:
		t.last[about] = now
	}
	return news
}
