package config

import "errors"

// Check finds everything that is wrong with the files, without a side effect:
// `fenced --check-config`. policies decodes policies.d, which this package
// does not know.
func Check(file string, policies func(Config) error, overrides ...string) error {
	c, err := Load(file, overrides...)
	if err != nil {
		// Hosts and policies are judged by the clusters, which are not known now.
		return err
	}
	_, err = LoadHosts(c)
	return errors.Join(err, policies(c))
}
