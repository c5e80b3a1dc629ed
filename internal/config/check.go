package config

import (
	"errors"
	"fmt"
	"slices"
)

// Check finds everything that is wrong with the files, without a side effect:
// `fenced --check-config`. policies decodes policies.d, which this package
// does not know. The warnings are of what need not be right when the daemon
// starts, as the hosts' files with passwords and certificates, and of doors that
// stand further open than they need to.
func Check(file string, policies func(Config) error, overrides ...string) (warnings []string, err error) {
	c, err := Load(file, overrides...)
	if err != nil {
		// Hosts and policies are judged by the clusters, which are not known now.
		return nil, err
	}
	_, ofHosts, err := loadHosts(c, true)
	return slices.Concat(warnModes(c), warnState(c), ofHosts), errors.Join(err, policies(c))
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
