package scene

import (
	"cmp"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

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
	if err := os.Mkdir(s.path("policies.d"), 0o700); err != nil {
		return fmt.Errorf("make policies.d: %w", err)
	}
	if err := rig.WriteFiles(s.path("policies.d"), s.opts.Policies); err != nil {
		return err
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
	if err := rig.WriteFiles(s.dir, map[string]string{"fenced.yaml": text}); err != nil {
		return err
	}
	return s.writeHosts()
}

func (s *Scene) Config() string { return s.path("fenced.yaml") }

func (s *Scene) Socket() string { return s.path("fenced.sock") }

func (s *Scene) flags() []string {
	args := []string{"--config", s.Config()}
	for _, kv := range s.opts.Set {
		args = append(args, "--set", kv)
	}
	return args
}

// Driver is the driver with which fenced uses a device.
type Driver string

// The drivers. Devices by the last two must be enrolled.
const (
	Native Driver = ""            // fenced's own, by the address
	BMCLib Driver = "bmclib"      // ipmitool or gofish
	Agent  Driver = "fence-agent" // fence_ipmilan or fence_redfish
)

// writeHosts lists the BMCs that no BareMetalHost describes.
func (s *Scene) writeHosts() error {
	var hosts []any
	files := map[string][]byte{}
	for _, w := range s.Workers {
		if w.BMC == nil || w.Metal3 || w.Unlisted {
			continue
		}
		secret := w.Name + ".password"
		files[secret] = []byte(w.told() + "\n")
		hosts = append(hosts, map[string]any{"node": w.Name, "levels": s.levels(w, s.path(secret))})
	}
	text, err := yaml.Marshal(map[string]any{"hosts": hosts})
	if err != nil {
		return fmt.Errorf("encode hosts.d: %w", err)
	}
	files["hosts.d/hosts.yaml"] = text
	return rig.WriteFiles(s.dir, files)
}

// levels are a worker's power levels: its BMC, then its outlets.
func (s *Scene) levels(w *Worker, secret string) []any {
	bmc := s.named(w).entry(w.Driver)
	bmc["username"], bmc["passwordFile"] = User, secret
	levels := []any{level(bmc)}
	var outlets []map[string]any
	for i, o := range w.Outlets {
		d := overIPMI(o.Driver, w.Outlet(i).Addr(), 3)
		d["username"], d["passwordFile"] = User, secret
		outlets = append(outlets, d)
	}
	if len(outlets) > 0 {
		levels = append(levels, level(outlets...))
	}
	return levels
}

func level(devices ...map[string]any) map[string]any { return map[string]any{"devices": devices} }

// named is the worker whose BMC is in the entry of w.
func (s *Scene) named(w *Worker) *Worker {
	if w.At == "" {
		return w
	}
	return s.Worker(w.At)
}

// IPMIAddress is HOST:PORT of its BMC, if that speaks IPMI.
func (w *Worker) IPMIAddress() string { return w.relay.Addr() }

// entry is the BMC as a device of hosts.d, without the account.
func (w *Worker) entry(driver Driver) map[string]any {
	switch {
	case w.Service == nil && w.Protocol == IPMISim: // it has no other suite; trying 17 first would cost a timeout
		return overIPMI(driver, w.relay.Addr(), 3)
	case w.Service == nil:
		return overIPMI(driver, w.relay.Addr(), 0)
	case driver == Agent:
		return map[string]any{"driver": driver, "agent": "fence_redfish", "address": w.Service.Addr(),
			"parameters": map[string]string{"ssl_insecure": "1", "systems_uri": w.Service.System(0).URI()}}
	}
	d := map[string]any{"address": w.Address(), "tls": map[string]any{"ca": w.Service.CAFile()}}
	if driver != Native {
		d["driver"] = driver
	}
	return d
}

// overIPMI is a device that speaks IPMI, by one cipher suite if that is not 0.
func overIPMI(driver Driver, addr string, suite int) map[string]any {
	if driver == Agent {
		p := map[string]string{"lanplus": "1", "power_wait": "0"}
		if suite != 0 {
			p["cipher"] = fmt.Sprint(suite)
		}
		return map[string]any{"driver": driver, "agent": "fence_ipmilan", "address": addr, "parameters": p}
	}
	d := map[string]any{"address": "ipmi://" + addr}
	if driver != Native {
		d["driver"] = driver
	}
	if suite != 0 {
		d["cipherSuites"] = []int{suite}
	}
	return d
}
