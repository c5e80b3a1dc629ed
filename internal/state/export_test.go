package state

// SetMaxBackups changes how large the record of the backups of a run may be, and returns what it was.
func SetMaxBackups(size int) (was int) {
	was, maxBackups = maxBackups, size
	return was
}
