package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/remote"
	"github.com/fenced/fenced/internal/wire"
)

// The events that fencectl itself adds, about the others. Their seq is 0.
const (
	eventMissed    = "Missed"    // so many are lost
	eventRestarted = "Restarted" // fenced has restarted: the end of the stream before may be lost
)

// The pauses before what failed is tried again, and how long a program may take for one event.
const (
	firstPause = time.Second
	lastPause  = time.Minute
	execTime   = 2 * time.Minute
)

// maxVariable bounds a variable of the environment of that program, in bytes: Linux starts none with one of 128 KiB. The JSON has all of it.
const maxVariable = 32 << 10

// pause is how long to wait before the next try; it doubles until there is a success.
type pause struct{ next time.Duration }

// wait waits, longer each time; false means that ctx is done.
func (p *pause) wait(ctx context.Context) bool {
	d := max(p.next, firstPause)
	p.next = min(2*d, lastPause)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// place is the last event that was delivered.
type place struct {
	Stream string `json:"stream"`
	Seq    uint64 `json:"seq"`
}

// maxPlaceBytes bounds the file of a place.
const maxPlaceBytes = 4 << 10

// readPlace reads the file of a place; one that does not exist or is empty, as after a crash of the host, is the beginning.
func readPlace(path string) (p place, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	var text []byte
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxPlaceBytes) {
		err = errors.New("it is not such a file")
	}
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil && len(text) > 0 {
		if err = json.Unmarshal(text, &p); err == nil && p.Stream == "" {
			err = errors.New("it names no stream of events")
		}
	}
	if err != nil {
		return place{}, &exitError{code: exitFailure, err: fmt.Errorf("read the place in %s: %w", path, err), hint: []string{"name another file, which need not exist: fencectl overwrites no other"}}
	}
	return p, nil
}

// save replaces the file as a whole.
func (p place) save(path string) error {
	text, err := json.Marshal(p)
	if err == nil {
		err = replaceFile(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keep the place of the events: %w", err)
	}
	return nil
}

// replaceFile writes a new file beside the old one, which nobody else can have made, and puts it in its place.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.new")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return finish(f, path, err)
}

// follower delivers each event after a place, and keeps the place.
type follower struct {
	c           *cli
	o           eventsOptions
	place       place
	lastFailure string // what was said last about one
}

// run reads until the events end or ctx is done. What may heal by itself, it waits for.
func (f *follower) run(ctx context.Context) error {
	var p pause
	for {
		before := f.place
		err := f.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil // interrupted, which is how --follow ends
		case err == nil:
			return nil
		case !f.o.follow || !mayHeal(err):
			if _, ok := errors.AsType[*exitError](err); ok {
				return err
			}
			return requestError("read the events", err)
		}
		if f.place != before {
			p = pause{}
		}
		f.say(fmt.Sprintf("read the events: %v; trying again", err))
		if !p.wait(ctx) {
			return nil
		}
	}
}

// mayHeal says whether the events may be read again without a change by a person.
func mayHeal(err error) bool {
	e, ok := errors.AsType[*remote.Error](err)
	return errors.Is(err, api.ErrUnreachable) && (!ok || e.Temporary())
}

// say tells of a failure once, until it is another one.
func (f *follower) say(text string) {
	if text != f.lastFailure {
		f.lastFailure = text
		fmt.Fprintf(f.c.errs, "fencectl: %s\n", escapeControl(text))
	}
}

// read delivers events over one connection.
func (f *follower) read(ctx context.Context) error {
	for e, err := range f.c.client().EventsAfter(ctx, f.place.Stream, f.place.Seq, f.o.follow) {
		if err != nil {
			return err
		}
		if e.Stream == "" {
			return &exitError{code: exitFailure, err: errors.New("read the events: fenced there is too old for --resume: it does not name its stream of events"), hint: []string{"upgrade fenced"}}
		}
		f.lastFailure = ""
		for _, e := range append(f.place.gap(e), e) {
			if !f.c.isAbout(e) {
				continue
			}
			if err := f.deliver(ctx, e); err != nil {
				return err
			}
		}
		f.place = place{e.Stream, e.Seq}
		if err := f.place.save(f.o.resume); err != nil {
			return &exitError{code: exitFailure, err: err}
		}
	}
	return nil
}

// gap says what is missing between the place and the next event.
func (p place) gap(next wire.Event) (list []wire.Event) {
	add := func(kind, text string) {
		list = append(list, wire.Event{At: next.At, Type: kind, Stream: next.Stream, Message: text})
	}
	after := p.Seq
	if p.Stream != "" && p.Stream != next.Stream {
		add(eventRestarted, fmt.Sprintf("fenced has restarted. Events after number %d of the stream before are lost, if there were any: fencectl audit show has them", p.Seq))
		after = 0
	}
	if p.Stream != "" && next.Seq > after+1 {
		add(eventMissed, fmt.Sprintf("%d events before the next one are lost: fencectl audit show has them", next.Seq-after-1))
	}
	return list
}

// deliver delivers one event: it is printed, or the program has taken it.
func (f *follower) deliver(ctx context.Context, e wire.Event) error {
	if f.o.exec == "" {
		if err := f.c.printOneEvent(e); err != nil {
			return &exitError{code: exitFailure, err: fmt.Errorf("print an event: %w", err)}
		}
		return nil
	}
	var p pause
	for {
		err := f.runProgram(ctx, e)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			f.say(fmt.Sprintf("%s did not take event %d (%s): %v; trying again", f.o.exec, e.Seq, e.Type, err))
		}
		if !p.wait(ctx) {
			return ctx.Err()
		}
	}
}

// runProgram runs the program of --exec for one event.
func (f *follower) runProgram(ctx context.Context, e wire.Event) error {
	body, err := encode(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, execTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.o.exec)
	cmd.Stdin = bytes.NewReader(wire.EscapeJSON(body))
	cmd.Stdout, cmd.Stderr = f.c.errs, f.c.errs
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = os.Environ()
	for _, part := range []struct{ name, text string }{
		{"EVENT", e.Type}, {"AT", clock(e.At)}, {"CLUSTER", e.Cluster}, {"NODE", e.Node}, {"MACHINE", e.Machine}, {"RUN", e.Run}, {"STEP", e.Step},
		{"REASON", e.Reason}, {"CLASS", e.Class}, {"MESSAGE", e.Message}, {"STREAM", e.Stream}, {"SEQ", strconv.FormatUint(e.Seq, 10)},
	} {
		text := escapeControl(part.text)
		if len(text) > maxVariable {
			text = strings.ToValidUTF8(text[:maxVariable], "") + "..."
		}
		cmd.Env = append(cmd.Env, "FENCED_"+part.name+"="+text)
	}
	return cmd.Run()
}
