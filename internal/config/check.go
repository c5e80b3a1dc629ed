package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// Check finds everything that is wrong with the files, all at once and without a side
// effect: `fenced --check-config`. more finds what this package does not know, as policies
// and kubeconfigs. The warnings are of what need not be right when the daemon starts, as the
// hosts' files with passwords and certificates, of doors that stand further open than they
// need to, and of what is there in vain.
func Check(file string, more func(Config) (warnings []string, err error), overrides ...string) (warnings []string, err error) {
	c, errs := load(file, overrides)
	if c.File == "" {
		return nil, errors.Join(errs...)
	}
	warnings = slices.Concat(warnModes(c), warnState(c), warnIgnored(c), warnEnvironment(), warnRoles(c))
	if len(c.Clusters) == 0 { // they say what hosts and policies are for
		return warnings, errors.Join(errs...)
	}
	hosts, ofHosts, err := loadHosts(c, true)
	others, moreErr := more(c)
	errs = append(errs, err, moreErr)
	// Only a start of the daemon can read what systemd gives: ExecReload= has the variable, too,
	// but may not look into the directory. The daemon itself checks again.
	if _, err := os.ReadDir(os.Getenv("CREDENTIALS_DIRECTORY")); err == nil {
		errs = append(errs, CheckCredentials(hosts))
	}
	return slices.Concat(warnings, ofHosts, others), errors.Join(errs...)
}

// ReadPolicies gives the files of c.Policies to decode, in name order. Its error joins
// those of reading and decoding.
func ReadPolicies(c Config, decode func(file string, data []byte) error) error {
	files, err := listFiles(c.Policies)
	if err != nil {
		return fmt.Errorf("load policies: %w", err)
	}
	var errs []error
	for _, file := range files {
		data, err := readBounded(file, maxFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("load policies: %w", err))
			continue
		}
		errs = append(errs, decode(file, data))
	}
	return errors.Join(errs...)
}
