package config

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckFindsHostsAndPoliciesTogether(t *testing.T) {
	file := write(t, map[string]string{
		"fenced.yaml":    oneCluster + "hosts: hosts.d\n",
		"hosts.d/a.yaml": "hosts: [{node: a}]\n",
	})
	bad := errors.New("policies.d/a.yaml:1: no check")
	err := Check(file, func(c Config) error {
		require.Equal(t, []string{"prod"}, c.ClusterNames())
		return bad
	})
	require.ErrorIs(t, err, bad)
	require.ErrorContains(t, err, "hosts.d/a.yaml:1: hosts[0]: bmc is missing")
	require.ErrorContains(t, Check(file, nil, "log.level=loud"), "command line: log.level")
	good := func(Config) error { return nil }
	require.NoError(t, Check(writeMain(t, oneCluster), good))
}

func TestParsePrincipal(t *testing.T) {
	for text, want := range map[string]Principal{
		"user:root":       {Name: "root"},
		"group:wheel":     {Group: true, Name: "wheel"},
		"user:1000":       {Name: "1000"},
		"user:svc$":       {Name: "svc$"},
		`group:AD\admins`: {Group: true, Name: `AD\admins`},
	} {
		got, err := ParsePrincipal(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "root", "user:", "group: a", "User:a", "user:a:b", "user:12a", "user:-a"} {
		_, err := ParsePrincipal(text)
		require.Error(t, err, text)
	}
}
