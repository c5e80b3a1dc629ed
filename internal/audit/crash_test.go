package audit

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const writerEnv = "FENCED_TEST_AUDIT_WRITER"

// TestMain is also the writer that TestKilledWriterLosesNothing kills: it prints
// the place of each entry once that is acknowledged.
func TestMain(m *testing.M) {
	hangTime = time.Minute
	path := os.Getenv(writerEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	l, err := Open(path, Options{Origin: origin, MaxFile: 4000})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	for range 8 {
		go func() {
			for {
				h, err := l.Append(context.Background(), Entry{Type: "Action", Message: strings.Repeat("x", 300)})
				if err != nil {
					fmt.Println("error:", err)
					os.Exit(1)
				}
				_, _ = os.Stdout.WriteString(h.String() + "\n") // one write: lines do not mix
			}
		}()
	}
	for {
		if _, err := l.Export(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		time.Sleep(time.Millisecond)
	}
}

// Every entry that was acknowledged is there after any number of kill -9.
func TestKilledWriterLosesNothing(t *testing.T) {
	path := newPath(t)
	var heads []Head
	for i := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+path)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		scan := bufio.NewScanner(out)
		for n := 0; scan.Scan(); n++ {
			if !strings.Contains(scan.Text(), ":") {
				break // cut by the kill
			}
			require.NotContains(t, scan.Text(), "error")
			h, err := ParseHead(scan.Text())
			require.NoError(t, err)
			heads = append(heads, h)
			if n == 20+7*i {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait() // it was killed
		cancel()
	}
	require.Greater(t, len(heads), 12*20)
	l := opened(t, path)
	require.NoError(t, l.Close())
	_, err := Verify(path, heads...)
	require.NoError(t, err)
	files, err := Files(path)
	require.NoError(t, err)
	require.Greater(t, len(files), 2, "files were put aside, too")
}
