package remote

import (
	"fmt"
	"io"
	"net"
)

// Join is the other end of a connection, on the host of fenced: it greets, and carries what comes in to conn and what conn answers
// out, until one of the two ends. It closes conn, and does not wait for a reading of in. Its error says that nobody was greeted.
func Join(conn net.Conn, in io.Reader, out io.Writer) error {
	defer conn.Close()
	if _, err := fmt.Fprintln(out, Greeting); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	go func() {
		// If fenced takes no more, it may have answered: that is read to its end.
		if _, err := io.Copy(conn, in); err == nil {
			_ = conn.Close()
		}
	}()
	_, _ = io.Copy(out, conn) // whichever side broke it, the connection is over
	return nil
}
