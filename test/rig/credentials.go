package rig

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fenced/fenced/test/certs"
	"github.com/fenced/fenced/test/kube"
)

// FencedUser is the user that configs/rbac.yaml binds fenced's rights to.
const FencedUser = "fenced"

// AdminGroup may do everything. Its members are for the tests themselves.
const AdminGroup = "system:masters"

// RESTConfig is a client configuration for a user of any name in any groups,
// without a rate limit of its own.
func (c *ControlPlane) RESTConfig(user string, groups ...string) (*rest.Config, error) {
	if c.standIn != nil {
		return c.standIn.RESTConfig(user, groups...), nil
	}
	p, err := c.ca.User(user, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:      c.URL(),
		UserAgent: "rig/" + user,
		QPS:       -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.ca.PEM, CertData: p.Cert, KeyData: p.Key,
		},
	}, nil
}

// Kubeconfig writes a kubeconfig file for a user of any name in any groups, and
// returns its path. Stop removes it.
func (c *ControlPlane) Kubeconfig(user string, groups ...string) (string, error) {
	cfg, err := c.RESTConfig(user, groups...)
	if err != nil {
		return "", err
	}
	k := clientcmdapi.NewConfig()
	k.Clusters["test"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken, ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
	k.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "user"}
	k.CurrentContext = "test"
	f, err := os.CreateTemp(c.dir.path, "kubeconfig-*.yaml")
	if err != nil {
		return "", fmt.Errorf("make a kubeconfig for %s: %w", user, err)
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("make a kubeconfig for %s: %w", user, err)
	}
	if err := clientcmd.WriteToFile(*k, f.Name()); err != nil {
		return "", fmt.Errorf("write a kubeconfig for %s: %w", user, err)
	}
	return filepath.Clean(f.Name()), nil
}

// KubeletClient authenticates as the kubelet of a node. The Node authorizer restricts it to its own
// Node and Lease. The audit log shows system:node:NAME.
func (c *ControlPlane) KubeletClient(node string) (*kube.Client, error) {
	cfg, err := c.RESTConfig("system:node:"+node, "system:nodes")
	if err != nil {
		return nil, err
	}
	cfg.ContentType = runtime.ContentTypeProtobuf // like a kubelet: there are many of them
	return kube.NewForConfig(cfg)
}

// writePKI puts the files that the programs read into dir: ca.crt, server.crt,
// server.key, and the key pair that signs service account tokens.
func writePKI(a *certs.Authority, dir string, also ...net.IP) error {
	server, err := a.Server(also...)
	if err != nil {
		return err
	}
	tokens, err := a.User("service-accounts", nil)
	if err != nil {
		return err
	}
	return WriteFiles(dir, map[string][]byte{
		"ca.crt": a.PEM, "server.crt": server.Cert, "server.key": server.Key,
		"sa.crt": tokens.Cert, "sa.key": tokens.Key,
	})
}

// WriteFiles writes files below a directory, with the directories that they need.
func WriteFiles[T string | []byte](below string, files map[string]T) error {
	for name, data := range files {
		path := filepath.Join(below, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("make the directory of %s: %w", name, err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
