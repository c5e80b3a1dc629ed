package client

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/fenced/fenced/internal/bmc"
)

// RequestTimeout is the timeout of one uncached read, and of a write that is repeated later.
// Only the tests change it.
var RequestTimeout = 5 * time.Second

const qps, burst = 400, 800

// Conn are the connections made from one reading of a kubeconfig.
type Conn struct {
	Typed   *Typed // protobuf
	Dynamic dynamic.Interface
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
	base.QPS, base.Burst, base.UserAgent, base.Dial = qps, burst, "fenced", dial
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
func connect(kubeconfig string, clock *offset) (*Conn, error) {
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
	custom := dynamic.ConfigFor(base)
	custom.NegotiatedSerializer = customStreams{streams{custom.NegotiatedSerializer}}
	rc, err := rest.UnversionedRESTClientForConfigAndClient(custom, hc)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig %s: %w", kubeconfig, withoutSecrets(err))
	}
	return &Conn{Typed: typed, Dynamic: dynamic.New(rc), file: stamp}, nil
}

func stampOf(file string) (fileStamp, error) {
	fi, err := os.Stat(file)
	if err != nil {
		return fileStamp{}, err
	}
	return fileStamp{size: fi.Size(), mod: fi.ModTime()}, nil
}

// known has the API groups whose types fenced reads or writes in protobuf. client-go's own client knows the types of all groups, which
// are a third of its program.
var known, codecs, parameters = func() (*runtime.Scheme, serializer.CodecFactory, runtime.ParameterCodec) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, storagev1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two types of one name; then no start comes as far as this
		}
	}
	return s, serializer.NewCodecFactory(s), runtime.NewParameterCodec(s)
}()

// Typed makes the requests for objects of known types, in protobuf.
type Typed struct {
	Core, coordination, storage, authorization rest.Interface
}

// newTyped makes the clients, which share the connection and one limit of requests.
func newTyped(c *rest.Config, hc *http.Client) (*Typed, error) {
	shared := rest.CopyConfig(c)
	shared.ContentType, shared.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	shared.NegotiatedSerializer = streams{rest.CodecFactoryForGeneratedClient(known, codecs).WithoutConversion()}
	shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)
	t := &Typed{}
	for _, g := range []struct {
		to   *rest.Interface
		path string
		gv   schema.GroupVersion
	}{
		{&t.Core, "/api", corev1.SchemeGroupVersion},
		{&t.coordination, "/apis", coordinationv1.SchemeGroupVersion},
		{&t.storage, "/apis", storagev1.SchemeGroupVersion},
		{&t.authorization, "/apis", authorizationv1.SchemeGroupVersion},
	} {
		own := rest.CopyConfig(shared)
		own.APIPath, own.GroupVersion = g.path, &g.gv
		made, err := rest.RESTClientForConfigAndClient(own, hc)
		if err != nil {
			return nil, err
		}
		*g.to = made
	}
	return t, nil
}

func (t *Typed) Events(namespace string) *gentype.Client[*corev1.Event] {
	return gentype.NewClient("events", t.Core, parameters, namespace, func() *corev1.Event { return &corev1.Event{} }, gentype.PrefersProtobuf[*corev1.Event]())
}

func (t *Typed) Nodes() *gentype.ClientWithList[*corev1.Node, *corev1.NodeList] {
	return gentype.NewClientWithList("nodes", t.Core, parameters, "", func() *corev1.Node { return &corev1.Node{} },
		func() *corev1.NodeList { return &corev1.NodeList{} }, gentype.PrefersProtobuf[*corev1.Node]())
}

func (t *Typed) Pods(namespace string) *gentype.ClientWithList[*corev1.Pod, *corev1.PodList] {
	return gentype.NewClientWithList("pods", t.Core, parameters, namespace, func() *corev1.Pod { return &corev1.Pod{} },
		func() *corev1.PodList { return &corev1.PodList{} }, gentype.PrefersProtobuf[*corev1.Pod]())
}

func (t *Typed) Secrets(namespace string) *gentype.Client[*corev1.Secret] {
	return gentype.NewClient("secrets", t.Core, parameters, namespace, func() *corev1.Secret { return &corev1.Secret{} }, gentype.PrefersProtobuf[*corev1.Secret]())
}

func (t *Typed) Namespaces() *gentype.Client[*corev1.Namespace] {
	return gentype.NewClient("namespaces", t.Core, parameters, "", func() *corev1.Namespace { return &corev1.Namespace{} }, gentype.PrefersProtobuf[*corev1.Namespace]())
}

func (t *Typed) Leases(namespace string) *gentype.ClientWithList[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return gentype.NewClientWithList("leases", t.coordination, parameters, namespace, func() *coordinationv1.Lease { return &coordinationv1.Lease{} },
		func() *coordinationv1.LeaseList { return &coordinationv1.LeaseList{} }, gentype.PrefersProtobuf[*coordinationv1.Lease]())
}

func (t *Typed) VolumeAttachments() *gentype.ClientWithList[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return gentype.NewClientWithList("volumeattachments", t.storage, parameters, "", func() *storagev1.VolumeAttachment { return &storagev1.VolumeAttachment{} },
		func() *storagev1.VolumeAttachmentList { return &storagev1.VolumeAttachmentList{} }, gentype.PrefersProtobuf[*storagev1.VolumeAttachment]())
}

func (t *Typed) SelfSubjectAccessReviews() *gentype.Client[*authorizationv1.SelfSubjectAccessReview] {
	return gentype.NewClient("selfsubjectaccessreviews", t.authorization, parameters, "",
		func() *authorizationv1.SelfSubjectAccessReview { return &authorizationv1.SelfSubjectAccessReview{} }, gentype.PrefersProtobuf[*authorizationv1.SelfSubjectAccessReview]())
}

// LogTo sends to w what client-go logs by itself, as the warnings that an API server adds to
// its answers. Without it that goes to stderr, whose reader may hold up who logs. w must not
// block. It may be called while client-go logs: its own logger is set once.
func LogTo(w io.Writer) {
	clientLog.to.Store(&w)
	clientLog.set.Do(func() {
		klog.SetSlogLogger(slog.New(slog.NewTextHandler(&clientLog, &slog.HandlerOptions{ReplaceAttr: withoutTime})))
	})
}

// clientLog is where client-go logs.
var clientLog logWriter

type logWriter struct {
	set sync.Once
	to  atomic.Pointer[io.Writer]
}

func (l *logWriter) Write(line []byte) (int, error) { return (*l.to.Load()).Write(line) }

// withoutTime leaves the time to the log that a line goes to.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
