package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/setup"
)

// The defaults of init.
const (
	defaultDir     = "/etc/fenced"
	defaultCluster = "prod"
	defaultBMCUser = "fence"
	// minToken is the shortest life of a token that Kubernetes gives.
	minToken = 10 * time.Minute
)

const initLong = `Look at a cluster with an administrator's kubeconfig, and write the first configuration:
fenced.yaml in mode observe, the BMCs of the hosts, the rights of fenced in the cluster for
what the cluster serves, and a script that grants them and writes the kubeconfig of fenced.
It says which kinds are served, which other remediators are alive, which hosts have a BMC,
and what the checks would do. It changes nothing in the cluster.

Without --kubeconfig it takes $KUBECONFIG, or the first of ~/.kube/config,
/etc/kubernetes/admin.conf, /etc/rancher/k3s/k3s.yaml and /etc/rancher/rke2/rke2.yaml that
exists. --cluster gives the name of the cluster in fenced.yaml (default: prod).

A file that exists stays as it is, and then nothing is written: see --force, which keeps
what it replaces as FILE.TIME.old. Only the fenced.yaml of the package that nobody has
changed is replaced.

The script makes the namespace fenced. If it exists already and the script did not make it,
nothing is written: whoever administers that namespace could take the rights of fenced. See
--existing-namespace. Run init with --force, and the script, again when another namespace gets
BareMetalHosts: fenced may read Secrets only in the namespaces in which init saw some.

The exit status is 0, or 2 if something of the cluster could not be seen, 7 if a file or the
namespace exists, and 1 after another error.`

// rights are the words of --rights.
var rights = []string{string(setup.RightsEvaluate), string(setup.RightsObserve)}

// initOptions are the command line of init.
type initOptions struct {
	setup.Options
	rights string
	bmcs   []string
	force  bool
	dryRun bool
}

func newInitCommand(c *cli) *cobra.Command {
	var o initOptions
	cmd := &cobra.Command{
		Use:   "init",
		Short: "look at a cluster, and write the first configuration",
		Long:  initLong,
		Args:  exactArgs(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.initialize(cmd.Context(), &o) },
	}
	flags, m := cmd.Flags(), &o.Request.Management
	flags.StringVar(&o.Request.Kubeconfig, "kubeconfig", "", "administrator's kubeconfig of the cluster whose Nodes are fenced")
	flags.StringVar(&m.Kubeconfig, "management-kubeconfig", "", "Cluster API: administrator's kubeconfig of a separate management cluster")
	flags.StringVar(&m.Namespace, "management-namespace", "", "Cluster API: use only this namespace of the management cluster")
	flags.StringVar(&m.ClusterName, "cluster-name", "", "Cluster API: name of the Cluster object, if the management cluster has several")
	flags.StringVar(&o.Dir, "output-dir", defaultDir, "directory for the files")
	flags.BoolVar(&o.force, "force", false, "replace files that exist, and keep the old ones beside them")
	flags.BoolVar(&o.dryRun, "dry-run", false, "look at the cluster and write nothing")
	flags.StringVar(&o.rights, "rights", string(setup.RightsEvaluate), "evaluate: enough to fence once armed; observe: read only")
	flags.DurationVar(&o.TokenDuration, "token-duration", 0, "life of the token, for example 720h; 0: it does not expire")
	flags.StringVar(&o.Server, "server", "", "https address of the API server for fenced (default: that of --kubeconfig)")
	flags.BoolVar(&o.ExistingNamespace, "existing-namespace", false, "accept a namespace fenced that somebody else may have made")
	flags.StringArrayVar(&o.bmcs, "bmc", nil, "NODE=ADDRESS of a BMC that no BareMetalHost names; may be repeated")
	flags.StringVar(&o.User, "bmc-username", defaultBMCUser, "user of the BMCs")
	return cmd
}

func (c *cli) initialize(ctx context.Context, o *initOptions) error {
	if err := o.complete(c.cluster); err != nil {
		return err
	}
	s, err := surveyCluster(ctx, o.Request)
	if err != nil {
		return err
	}
	s.Cluster = o.Request.Cluster // it names files
	if err := o.checkVerified(&s); err != nil {
		return err
	}
	if err := o.chooseCluster(&s); err != nil {
		return err
	}
	if err := o.checkBMCs(&s); err != nil {
		return err
	}
	if err := o.checkNamespaces(&s); err != nil && !o.dryRun {
		return err
	}
	files, err := s.Files(&o.Options)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if err := checkFiles(o.Dir, files); err != nil {
		return err
	}
	if !o.dryRun {
		kept, err := writeFiles(o.Dir, files, o.force)
		if err != nil {
			return err
		}
		files = append(files, kept...)
	}
	r := initResult{Survey: s, Distribution: s.Distribution(), Written: !o.dryRun, Next: s.Next(&o.Options)}
	for i, n := range r.Nodes {
		if address, named := o.BMCs[n.Name]; named {
			r.Nodes[i].BMC, r.Nodes[i].BareMetalHost = setup.BMCAddress(address), ""
		}
	}
	for _, f := range files {
		f.Path = filepath.Join(o.Dir, f.Path)
		r.Files = append(r.Files, f)
	}
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("print the result of init: %w", err)
	}
	if err := c.print(append(body, '\n'), func() error { return c.printInit(&r) }); err != nil {
		return err
	}
	if len(s.Unseen) > 0 {
		return &exitError{code: exitDegraded}
	}
	return nil
}

// complete checks the command line and fills in what it leaves out.
func (o *initOptions) complete(cluster string) error {
	o.Version, o.Request.Cluster = version, cluster
	if cluster == "" {
		o.Request.Cluster = defaultCluster
	}
	if o.Rights = setup.Rights(o.rights); !slices.Contains(rights, o.rights) {
		return usageError(fmt.Errorf("init: --rights %q is neither evaluate nor observe", o.rights), "--rights evaluate")
	}
	if o.TokenDuration != 0 && o.TokenDuration < minToken {
		return usageError(fmt.Errorf("init: --token-duration %s is too short: Kubernetes gives tokens for at least %s", o.TokenDuration, minToken), "--token-duration 720h")
	}
	if strings.ContainsAny(o.Server, "\"\n\r\\") || o.Server != "" && !strings.HasPrefix(o.Server, "https://") {
		return usageError(fmt.Errorf("init: --server %q is not an https address", o.Server), "--server https://192.0.2.10:6443")
	}
	if err := o.readBMCs(); err != nil {
		return err
	}
	m := &o.Request.Management
	if m.Kubeconfig == "" && (m.Namespace != "" || m.ClusterName != "") {
		return usageError(errors.New("init: --management-namespace and --cluster-name are for a separate management cluster"), "--management-kubeconfig FILE")
	}
	var err error
	if o.Request.Kubeconfig, err = findKubeconfig(o.Request.Kubeconfig); err != nil {
		return err
	}
	for _, path := range []*string{&o.Request.Kubeconfig, &m.Kubeconfig, &o.Dir} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("init: %w", err)
		}
		if strings.ContainsAny(*path, "\n\r") {
			return usageError(fmt.Errorf("init: the path %q has a line break", *path))
		}
	}
	return nil
}

// readBMCs reads the flags --bmc.
func (o *initOptions) readBMCs() error {
	o.BMCs = map[string]string{}
	for _, text := range o.bmcs {
		node, address, ok := strings.Cut(text, "=")
		if !ok || address == "" || api.CheckNode(node) != nil {
			return usageError(fmt.Errorf("init: --bmc %q is not NODE=ADDRESS", text), "--bmc worker-3=ipmi://192.0.2.13")
		}
		if _, twice := o.BMCs[node]; twice {
			return usageError(fmt.Errorf("init: --bmc names %s twice", node), "name several BMCs of a host in hosts.d, as levels")
		}
		o.BMCs[node] = address
	}
	return nil
}

// checkVerified refuses an administrator's kubeconfig without a certificate of the API server: the one that the script
// writes for fenced takes it from there, and fenced gives its token to no server that it cannot recognise.
func (o *initOptions) checkVerified(s *setup.Survey) error {
	for i, server := range s.Servers {
		if !server.Unverified {
			continue
		}
		path := o.Request.Kubeconfig
		if i > 0 {
			path = o.Request.Management.Kubeconfig
		}
		return &exitError{code: exitFailure, hint: []string{
			"get the certificate of the authority from a control-plane host: /etc/kubernetes/pki/ca.crt (kubeadm), /var/lib/rancher/k3s/server/tls/server-ca.crt (k3s), " +
				"/var/lib/rancher/rke2/server/tls/server-ca.crt (RKE2)",
			"put it in the place of insecure-skip-tls-verify, and run init again: kubectl config --kubeconfig " + path +
				" set-cluster CLUSTER --embed-certs --certificate-authority ca.crt, where CLUSTER is what kubectl config --kubeconfig " + path + " get-clusters lists"},
			err: fmt.Errorf("init: nothing was written: kubeconfig %s says insecure-skip-tls-verify, so nothing shows that %s is your API server, and fenced would have no certificate to recognise it by", path, server.URL)}
	}
	return nil
}

// chooseCluster finds the Cluster on a management API, without which fenced would not know which
// Machines are those of the Nodes.
func (o *initOptions) chooseCluster(s *setup.Survey) error {
	m := &o.Request.Management
	switch {
	case m.Kubeconfig == "" || m.ClusterName != "":
		return nil
	case len(s.Clusters) == 1:
		m.ClusterName = s.Clusters[0]
		return nil
	case len(s.Clusters) == 0:
		return &exitError{code: exitFailure, err: fmt.Errorf("init: no Cluster was seen on the management API %s", s.Servers[1].URL),
			hint: []string{"is it the right kubeconfig, and may it list clusters.cluster.x-k8s.io? --cluster-name NAME goes on without it"}}
	}
	return usageError(fmt.Errorf("init: the management cluster has several Clusters: %s", strings.Join(s.Clusters, ", ")), "--cluster-name NAME says which one has these Nodes")
}

// checkBMCs refuses a BMC of a Node that does not exist: a slip of the name would be found only when the node
// is dead.
func (o *initOptions) checkBMCs(s *setup.Survey) error {
	known := map[string]bool{}
	for _, n := range s.Nodes {
		known[n.Name] = true
	}
	for node := range o.BMCs {
		if !known[node] && len(known) > 0 {
			return usageError(fmt.Errorf("init: --bmc names %s, and the cluster has no such Node", node), "kubectl get nodes")
		}
	}
	return nil
}

// checkNamespaces refuses a Namespace of fenced that the script of init did not make: its administrator can mint the
// token of fenced.
func (o *initOptions) checkNamespaces(s *setup.Survey) error {
	for i, server := range s.Servers {
		if server.Namespace == "" || o.ExistingNamespace {
			continue
		}
		record := filepath.Join(o.Dir, s.NamespaceRecord(i))
		if made, err := os.ReadFile(record); err == nil && strings.TrimSpace(string(made)) == server.Namespace {
			continue
		}
		return &exitError{code: exitConflict, hint: []string{
			"whoever administers it could take the rights of fenced: kubectl -n " + setup.Account + " get rolebindings,serviceaccounts,secrets,pods -o wide",
			"delete it, or accept it with --existing-namespace"},
			err: fmt.Errorf("init: nothing was written: the namespace %s exists already on %s, and %s does not say that the script of init made it", setup.Account, server.URL, record)}
	}
	return nil
}

// surveyTime is longer than the daemon's program needs at most: it gives what it saw by then.
const surveyTime = 2 * time.Minute

// maxSurvey bounds what the survey may say: a cluster is untrusted.
const maxSurvey = 256 << 20

// surveyCluster has the daemon's program look at a cluster. fencectl itself does not know Kubernetes.
func surveyCluster(ctx context.Context, r setup.Request) (s setup.Survey, err error) {
	program, err := daemonProgram()
	if err != nil {
		return s, err
	}
	request, err := json.Marshal(r)
	if err != nil {
		return s, fmt.Errorf("init: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--survey")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin = bytes.NewReader(request)
	out, said := limitedBuffer{left: maxSurvey}, limitedBuffer{left: 64 << 10}
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(strings.TrimPrefix(said.String(), "fenced: ")); text != "" {
			err = errors.New(text)
		}
		return s, &exitError{code: exitFailure, err: fmt.Errorf("init: look at the cluster: %w", err), hint: []string{
			"can this host reach the API server, and is the kubeconfig an administrator's? kubectl --kubeconfig " + r.Kubeconfig + " get nodes"}}
	}
	err = json.Unmarshal(out.Bytes(), &s)
	wanted := 1
	if r.Management.Kubeconfig != "" {
		wanted = 2
	}
	if err == nil && len(s.Servers) != wanted {
		err = fmt.Errorf("it has %d API servers, not %d", len(s.Servers), wanted)
	}
	if err != nil {
		return s, &exitError{code: exitFailure, err: fmt.Errorf("init: read the answer of %s --survey: %w", program, err),
			hint: []string{"is it of the same version as fencectl (" + version + ")? " + program + " --version"}}
	}
	return s, nil
}

// limitedBuffer keeps the beginning of what is written.
type limitedBuffer struct {
	bytes.Buffer
	left int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	_, err := b.Buffer.Write(p[:n])
	return len(p), err
}

// usualKubeconfigs are where administrators of kubeadm, k3s and RKE2 have theirs.
var usualKubeconfigs = []string{"/etc/kubernetes/admin.conf", "/etc/rancher/k3s/k3s.yaml", "/etc/rancher/rke2/rke2.yaml"}

// findKubeconfig is the kubeconfig that was named, or the usual one.
func findKubeconfig(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	if list := filepath.SplitList(os.Getenv("KUBECONFIG")); len(list) == 1 {
		return list[0], nil
	} else if len(list) > 1 {
		return "", usageError(fmt.Errorf("init: KUBECONFIG names %d files", len(list)), "--kubeconfig FILE names the one of the cluster")
	}
	var tried []string
	if home, err := os.UserHomeDir(); err == nil {
		tried = append(tried, filepath.Join(home, ".kube", "config"))
	}
	tried = append(tried, usualKubeconfigs...)
	for _, path := range tried {
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return "", fmt.Errorf("init: find a kubeconfig: %w", err)
		}
	}
	return "", usageError(fmt.Errorf("init: there is no kubeconfig: none of %s can be read, and KUBECONFIG is not set", strings.Join(tried, ", ")),
		"fencectl init --kubeconfig FILE, with an administrator's kubeconfig of the cluster")
}
