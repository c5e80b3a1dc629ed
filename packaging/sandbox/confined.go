package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"

	"golang.org/x/sys/unix"
)

// marks are what the kernel says about a process that cannot gain anything.
var marks = []string{`NoNewPrivs:\t1`, `Seccomp:\t2`, `CapBnd:\t0+`, `CapEff:\t0+`}

// confined says whether the sandbox is really there: drivers that work outside
// of it would show nothing.
func confined() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for _, m := range marks {
		if !regexp.MustCompile(`(?m)^` + m + `$`).Match(status) {
			return fmt.Errorf("the kernel does not say %s", m)
		}
	}
	for what, try := range map[string]func() error{
		"a page that is written and run": func() error {
			_, err := unix.Mmap(-1, 0, 4096, unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
			return err
		},
		"a raw packet": func() error {
			_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
			return err
		},
		"a file in /usr": func() error { return os.WriteFile("/usr/sandbox", nil, 0o600) },
		"what the first process was given": func() error {
			_, err := os.ReadFile("/proc/1/environ")
			return err
		},
		"the settings of the kernel": func() error {
			_, err := os.Stat("/proc/sys")
			return err
		},
	} {
		if try() == nil {
			return errors.New("it is allowed: " + what)
		}
	}
	if os.Getuid() == 0 {
		return errors.New("it is root")
	}
	return nil
}
