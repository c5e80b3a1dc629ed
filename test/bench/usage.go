package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process cost while the load ran.
type Usage struct {
	CPU     float64 // share of one core
	RSS     int64   // bytes, at the end of the window
	Own     int64   // bytes of it that are no pages of files, as the program's
	Peak    int64   // bytes, the most it ever had
	Updates float64 // of Nodes per second, during the window
}

// usage measures for as long as window.
func (p *process) usage(ctx context.Context, window time.Duration, updates *counter) (Usage, error) {
	began, posted := time.Now(), updates.Load()
	before, err := p.cpuTime()
	if err != nil {
		return Usage{}, err
	}
	if !sleep(ctx, window) {
		return Usage{}, ctx.Err()
	}
	after, err := p.cpuTime()
	if err != nil {
		return Usage{}, err
	}
	took := time.Since(began)
	u := Usage{CPU: (after - before).Seconds() / took.Seconds(), Updates: perSecond(updates.Load()-posted, took)}
	if u.RSS, err = p.memory("VmRSS"); err != nil {
		return u, err
	}
	if u.Own, err = p.memory("RssAnon"); err != nil {
		return u, err
	}
	peak, err := p.peak()
	u.Peak = max(u.RSS, peak)
	return u, err
}

// peak is the most memory it ever had. The kernel notes that late: what it has
// now may already be more.
func (p *process) peak() (int64, error) {
	noted, err := p.memory("VmHWM")
	if err != nil {
		return 0, err
	}
	now, err := p.memory("VmRSS")
	return max(noted, now), err
}

// userHz is the unit of CPU times in /proc, the same on every Linux machine.
const userHz = 100

// cpuTime is the time in user and kernel mode of all threads.
func (p *process) cpuTime() (time.Duration, error) { return cpuTimeOf(p.cmd.Process.Pid, p.name) }

// cpuTimeOf is the same of any process.
func cpuTimeOf(pid int, name string) (time.Duration, error) {
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of %s: %w", name, err)
	}
	d, err := parseCPU(string(stat))
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of %s: %w", name, err)
	}
	return d, nil
}

// parseCPU adds utime and stime, fields 14 and 15 of proc_pid_stat(5). The
// second is the program's name, which may hold anything.
func parseCPU(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%q is no line of /proc/PID/stat", stat)
	}
	var ticks uint64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHz, nil
}

// memory is a line of /proc/PID/status in bytes.
func (p *process) memory(key string) (int64, error) {
	status, err := os.ReadFile(procFile(p.cmd.Process.Pid, "status"))
	if err != nil {
		return 0, fmt.Errorf("read the memory of %s: %w", p.name, err)
	}
	n, err := parseMemory(status, key)
	if err != nil {
		return 0, fmt.Errorf("read the memory of %s: %w", p.name, err)
	}
	return n, nil
}

func parseMemory(status []byte, key string) (int64, error) {
	for line := range bytes.Lines(status) {
		fields := strings.Fields(string(line))
		if len(fields) == 3 && fields[0] == key+":" && fields[2] == "kB" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/PID/status has no %s", key)
}

func procFile(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }
