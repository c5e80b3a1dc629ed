package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Somebody who guesses the key of the password wrong does not find it in a log. // I25
func TestErrorsDoNotRepeatWhatMayBeAPassword(t *testing.T) {
	const canary = "Canary-4711-Pw"
	for name, text := range map[string]string{
		"a Secret":              "address: 192.0.2.1, secret: " + canary,
		"a credential":          "address: 192.0.2.1, username: u, credential: /" + canary,
		"a password":            "address: 192.0.2.1, username: u, password: " + canary,
		"a list of Secrets":     "address: 192.0.2.1, secret: [" + canary + "]",
		"a tag":                 "address: 192.0.2.1, secret: !" + canary + " x",
		"an alias":              "address: 192.0.2.1, secret: *" + canary,
		"an anchor":             "address: 192.0.2.1, secret: &" + canary,
		"a secret parameter":    "driver: fence-agent, agent: fence_x, secretParameters: " + canary,
		"parameters by a comma": "driver: fence-agent, agent: fence_x, secretParameters: {community: [" + canary + "]}",
		"a user information":    "address: \"ipmi://u:" + canary + "@x y\", secret: a/b",
	} {
		_, _, err := loadFiles(t, []string{"prod"}, map[string]string{"a.yaml": "hosts:\n- node: a\n  bmc: {" + text + "}\n"})
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), canary, name)
	}
	for name, text := range map[string]string{
		"a number for a Secret": "secret: 4711471147114711", "a number for a file": "username: u, passwordFile: 4711471147114711",
		"a number for a credential": "username: u, credential: 4711471147114711", "a day": "secret: 4711-01-01",
	} {
		_, _, err := loadFiles(t, []string{"prod"}, map[string]string{"a.yaml": "hosts:\n- node: a\n  bmc: {address: 192.0.2.1, " + text + "}\n"})
		require.ErrorContains(t, err, "is not text; quote it", name)
		require.NotRegexp(t, "4711(4711|-01)", err.Error(), name) // the file's path may have a number
	}
}
