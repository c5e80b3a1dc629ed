package config

import "errors"

// Check finds everything that is wrong with the files, without a side effect:
// `fenced --check-config`. policies decodes policies.d, which this package
// does not know. The warnings are of what need not be right when the daemon
// starts: the hosts' files with passwords and certificates.
func Check(file string, policies func(Config) error, overrides ...string) (warnings []string, err error) {
	c, err := Load(file, overrides...)
	if err != nil {
		// Hosts and policies are judged by the clusters, which are not known now.
		return nil, err
	}
	_, warnings, err = loadHosts(c, true)
	return warnings, errors.Join(err, policies(c))
}
