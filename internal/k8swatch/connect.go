package k8swatch

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fenced/fenced/internal/bmc"
)

// requestTimeout is the timeout of one uncached read, and of a write that is repeated later.
// Only the tests change it.
var requestTimeout = 5 * time.Second

const qps, burst = 400, 800

// clients are the connections made from one reading of a kubeconfig.
type clients struct {
	typed   *typed // protobuf
	dynamic dynamic.Interface
	file    fileStamp
}

type fileStamp struct {
	size int64
	mod  time.Time
}

// load reads a kubeconfig and the files that it names. It talks to nobody.
func load(kubeconfig string) (*rest.Config, error) {
	if _, err := os.Stat(kubeconfig); err != nil { // without a file, client-go would look elsewhere
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	base, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if clientcmd.IsEmptyConfig(err) {
		err = errors.New("it names no cluster") // in place of advice on the environment
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, withoutSecrets(err))
	}
	base.QPS, base.Burst, base.UserAgent = qps, burst, "fenced"
	return base, nil
}

// Where the errors of client-go and of YAML repeat what a kubeconfig says: a password in the URL of a server or
// of a proxy, and a token that begins with a star.
var (
	userInURL     = regexp.MustCompile(`://[^\s"'<>]*@`)
	unknownAnchor = regexp.MustCompile(`(?s)unknown anchor .*`)
)

// withoutSecrets is an error without what may be a secret of the kubeconfig. // I25
func withoutSecrets(err error) error {
	text := userInURL.ReplaceAllString(err.Error(), "://"+bmc.Secret{}.String()+"@")
	text = unknownAnchor.ReplaceAllString(text, "aliases are not supported; quote a text that begins with *")
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// CheckKubeconfig says whether a daemon could use a kubeconfig: whether it can be read and
// decoded, and the files that it names with it. It talks to nobody. secrets are the files of
// keys and tokens that it names.
func CheckKubeconfig(kubeconfig string) (secrets []string, err error) {
	base, err := load(kubeconfig)
	if err != nil {
		return nil, err
	}
	for _, file := range []string{base.KeyFile, base.BearerTokenFile} {
		if file != "" {
			secrets = append(secrets, file)
		}
	}
	if _, err := rest.HTTPClientFor(base); err != nil {
		return secrets, fmt.Errorf("use kubeconfig %s: %w", kubeconfig, withoutSecrets(err))
	}
	return secrets, nil
}

// connect makes clients from the current kubeconfig. Their answers set the clock.
func connect(kubeconfig string, clock *offset) (*clients, error) {
	stamp, err := stampOf(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	base, err := load(kubeconfig)
	if err != nil {
		return nil, err
	}
	base.Wrap(func(rt http.RoundTripper) http.RoundTripper { return limitedTransport{rt, clock} })
	hc, err := rest.HTTPClientFor(base)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig %s: %w", kubeconfig, withoutSecrets(err))
	}
	// An API server does not redirect. Following a redirect would send our token to
	// another server.
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	typed, err := newTyped(base, hc)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig %s: %w", kubeconfig, withoutSecrets(err))
	}
	dyn, err := dynamic.NewForConfigAndClient(base, hc)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig %s: %w", kubeconfig, withoutSecrets(err))
	}
	return &clients{typed: typed, dynamic: dyn, file: stamp}, nil
}

func stampOf(file string) (fileStamp, error) {
	fi, err := os.Stat(file)
	if err != nil {
		return fileStamp{}, err
	}
	return fileStamp{size: fi.Size(), mod: fi.ModTime()}, nil
}
