package rig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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
	p, err := c.ca.user(user, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:      c.URL(),
		UserAgent: "rig/" + user,
		QPS:       -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.ca.pem, CertData: p.cert, KeyData: p.key,
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

// authority signs the certificates of servers and of users. One CA is enough for a cluster that runs
// for minutes.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// pair is a certificate and its key, in PEM.
type pair struct{ cert, key []byte }

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's CA key: %w", err)
	}
	tmpl := template("fenced-test-ca")
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the cluster's CA: %w", err)
	}
	return &authority{cert: cert, key: key, pem: encode("CERTIFICATE", der)}, nil
}

// server makes a certificate for a server on 127.0.0.1.
func (a *authority) server() (pair, error) {
	tmpl := template("fenced-test-server")
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	tmpl.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	tmpl.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default.svc"}
	return a.sign(tmpl)
}

// user makes a client certificate. Kubernetes reads the user from the common name, and the groups from
// the organisations.
func (a *authority) user(name string, groups []string) (pair, error) {
	tmpl := template(name)
	tmpl.Subject.Organization = groups
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(tmpl)
}

func (a *authority) sign(tmpl *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make a key for %s: %w", tmpl.Subject.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign the certificate of %s: %w", tmpl.Subject.CommonName, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode the key of %s: %w", tmpl.Subject.CommonName, err)
	}
	return pair{cert: encode("CERTIFICATE", der), key: encode("PRIVATE KEY", keyDER)}, nil
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		panic(fmt.Sprintf("rig: crypto/rand never fails since Go 1.24, and did: %v", err))
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(48 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writePKI puts the files that the programs read into dir: ca.crt, server.crt,
// server.key, and the key pair that signs service account tokens.
func (a *authority) writePKI(dir string) error {
	server, err := a.server()
	if err != nil {
		return err
	}
	tokens, err := a.sign(template("service-accounts"))
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"ca.crt": a.pem, "server.crt": server.cert, "server.key": server.key,
		"sa.crt": tokens.cert, "sa.key": tokens.key,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write the cluster's keys: %w", err)
		}
	}
	return nil
}
