package scene

import (
	"cmp"
	"fmt"
	"os"

	"github.com/fenced/fenced/test/rig"
)

// ClusterName is the cluster's name in fenced.yaml, and that of the Cluster API's
// Cluster.
const ClusterName = "scene"

// Instance is what fenced is called there.
const Instance = "prompter"

// Times that each play waits for are short; those that only end what went wrong are long,
// so that a busy machine ends nothing. What is not here has its default. The health check
// of the BMCs is off, so that a play can tell who asked a BMC.
const configuration = `instance: %s
clusters:
  - {name: %s, kubeconfig: %s, management: {kubeconfig: "%s", namespace: "%s", clusterName: "%s"}, mode: %s, metal3Remediations: %t}
hosts: hosts.d
bmcNetworks: [127.0.0.0/8]
bareMetalHosts: {unverified: true}
policies: policies.d
state: {path: state.db}
control: {socket: %s, group: "", pauseFile: paused}
metrics: {listen: ""}
sweep: {interval: 0s}
guards:
  quietPeriod: 0s
  minPowerInterval: 1s
  maxInFlight: 50
  maxInFlightPercent: 100
  maxInFlightTotal: 1000
  startsPerHour: 0
  viewMaxAge: 45s
  maxFencesPerDay: 50
power:
  offDeadline: 2m
  onDeadline: 3m
  podsGoneTimeout: 3s
  nodeReadyTimeout: 5m
`

// writeConfig writes fenced.yaml, hosts.d and policies.d.
func (s *Scene) writeConfig() error {
	for _, dir := range []string{"hosts.d", "policies.d"} {
		if err := os.Mkdir(s.path(dir), 0o700); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	for name, text := range s.opts.Policies {
		if err := os.WriteFile(s.path("policies.d/"+name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write policies.d: %w", err)
		}
	}
	kubeconfig, err := s.Cluster.Kubeconfig(rig.FencedUser)
	if err != nil {
		return err
	}
	var management, namespace, cluster string
	if s.opts.Machines.ofClusterAPI() {
		namespace, cluster = rig.Namespace, ClusterName
		if management, err = s.Management.Kubeconfig(rig.FencedUser); err != nil {
			return err
		}
	}
	text := fmt.Sprintf(configuration, Instance, ClusterName, kubeconfig, management, namespace, cluster, cmp.Or(s.opts.Mode, "evaluate"), s.opts.Metal3Requests, s.Socket())
	if err := os.WriteFile(s.Config(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return s.writeHosts()
}

// Config is the path of fenced.yaml.
func (s *Scene) Config() string { return s.path("fenced.yaml") }

// Socket is the control socket of the scene's fenced.
func (s *Scene) Socket() string { return s.path("fenced.sock") }

// flags are those of the daemon.
func (s *Scene) flags() []string {
	args := []string{"--config", s.Config()}
	for _, kv := range s.opts.Set {
		args = append(args, "--set", kv)
	}
	return args
}
