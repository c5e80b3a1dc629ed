package ipmisim

// Kill ends the process and leaves its port to whoever wants it.
func (b *process) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kill()
}
