package engine

// turn is a lock that is held during I/O. Whoever waits for it waits on a channel, as
// if for the I/O itself: in virtual time (testing/synctest) the clock goes on
// meanwhile, which it does not for those who wait for a mutex.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) lock()   { t <- struct{}{} }
func (t turn) unlock() { <-t }
