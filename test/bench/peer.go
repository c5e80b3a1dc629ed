package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fenced/fenced/test/rig"
)

// peer is a running rejudger: this very program, as a process of its own so that
// the kernel accounts for it alone.
type peer struct {
	*process
	ask    io.WriteCloser
	answer *bufio.Scanner
}

// measurePeer measures the comparison as fenced was measured.
func (b *bench) measurePeer(ctx context.Context) error {
	b.tell("starting the controller that judges everything again at every event")
	p, err := b.startPeer(ctx)
	if err != nil {
		return err
	}
	defer p.stop()
	before, err := p.judgements()
	if err != nil {
		return err
	}
	began := time.Now()
	if b.result.Peer, err = b.usage(ctx, p.process); err != nil {
		return err
	}
	after, err := p.judgements()
	b.result.Judgements = perSecond(after-before, time.Since(began))
	return err
}

func (b *bench) startPeer(ctx context.Context) (*peer, error) {
	kubeconfig, err := b.cluster.Kubeconfig(rig.FencedUser)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	p := &peer{process: newProcess(b.dir, rejudgeWord, self, rejudgeWord, kubeconfig)}
	if p.ask, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	p.answer = bufio.NewScanner(out)
	if err := p.start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(startTime, p.kill) // ends a read that would wait for ever
	defer late.Stop()
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	if line, err := p.read(); line != syncedWord {
		p.stop()
		return nil, fmt.Errorf("start the peer: %q: %w\n%s", line, err, p.logTail())
	}
	return p, nil
}

// judgements is how often it judged everything since its start.
func (p *peer) judgements() (int64, error) {
	if _, err := fmt.Fprintln(p.ask); err != nil {
		return 0, fmt.Errorf("ask the peer: %w", err)
	}
	line, err := p.read()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("ask the peer: %w", err)
	}
	return n, nil
}

func (p *peer) read() (string, error) {
	if !p.answer.Scan() {
		return "", fmt.Errorf("the peer ended: %w", io.ErrUnexpectedEOF)
	}
	return strings.TrimSpace(p.answer.Text()), nil
}
