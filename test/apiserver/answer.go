package apiserver

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/test/kube"
)

// call is one request, and how it is answered.
type call struct {
	s         *Server
	k         *kind // nil until it is known
	q         *Request
	w         http.ResponseWriter
	r         *http.Request
	user      user
	mediaType string
}

func serializerOf(mediaType string) runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(kube.Codecs.SupportedMediaTypes(), mediaType)
	return info
}

// negotiate chooses the first media type that the client accepts. Tables, metadata alone and aggregated discovery are left to the real
// server: clients that ask for them accept plain answers, too.
func (c *call) negotiate() error {
	supported := c.k.mediaTypes()
	c.mediaType = supported[0]
	accept := strings.Join(c.r.Header.Values("Accept"), ",")
	for _, clause := range strings.Split(accept, ",") {
		mediaType, params, err := mime.ParseMediaType(clause)
		switch {
		case accept == "", mediaType == "*/*", mediaType == "application/*":
			return nil
		case err == nil && params["as"] == "" && slices.Contains(supported, mediaType):
			c.mediaType = mediaType
			return nil
		}
	}
	return refused(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: "+strings.Join(supported, ", "))
}

func refused(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// raw answers with bytes in the media type of the call.
func (c *call) raw(code int, raw []byte, err error) error {
	if err == nil {
		c.w.Header().Set("Content-Type", c.mediaType)
		c.w.WriteHeader(code)
		_, _ = c.w.Write(raw) // else the client has gone
	}
	return err
}

// entry answers with a stored object, unless there is an error.
func (c *call) entry(code int, e *entry, err error) error {
	if err != nil {
		return err
	}
	raw, err := c.k.render(e, c.q.Version, c.mediaType)
	return c.raw(code, raw, err)
}

// answer answers with an object or a list of the kind.
func (c *call) answer(code int, o runtime.Object) error {
	raw, err := runtime.Encode(c.k.codec(c.mediaType, c.q.Version), o)
	return c.raw(code, raw, err)
}

// encoded is an object that is of no kind, such as a Status.
func (c *call) encoded(o runtime.Object) ([]byte, error) {
	return runtime.Encode(runtime.WithVersionEncoder{Version: schema.GroupVersion{Version: "v1"}, Encoder: serializerOf(c.mediaType).Serializer, ObjectTyper: kube.Scheme}, o)
}

func (c *call) document(code int, o runtime.Object) {
	raw, err := c.encoded(o)
	if c.raw(code, raw, err) != nil {
		http.Error(c.w, err.Error(), http.StatusInternalServerError)
	}
}

// fail answers with the Status of an error.
func (c *call) fail(err error) {
	s := statusOf(err)
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	c.document(int(s.Code), s)
}

func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		api = apierrors.NewInternalError(err)
	}
	s := api.Status()
	return &s
}

// largest is the largest body of a request that is read.
const largest = 3 << 20

// body reads the body of a request.
func (c *call) body(supported []string) (mediaType string, body []byte, err error) {
	if mediaType, _, err = mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil {
		mediaType = supported[0]
	}
	if !slices.Contains(supported, mediaType) {
		return "", nil, refused(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: "+strings.Join(supported, ", "))
	}
	if body, err = io.ReadAll(io.LimitReader(c.r.Body, largest+1)); err == nil && len(body) > largest {
		err = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", largest))
	}
	return mediaType, body, err
}

// received is the object in the body of a request.
func (c *call) received() (object, error) {
	mediaType, body, err := c.body(c.k.mediaTypes())
	if err != nil {
		return nil, err
	}
	return c.decode(mediaType, body)
}

// decode decodes an object of the kind and version of the request.
func (c *call) decode(mediaType string, body []byte) (object, error) {
	want, into := c.k.at(c.q.Version), c.k.empty(c.q.Version)
	o, got, err := c.k.codec(mediaType, c.q.Version).Decode(body, &want, into)
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", want.Kind, want.Version, want.Kind, err))
	case got.GroupVersion() != want.GroupVersion():
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), want.GroupVersion()))
	case got.Kind != want.Kind || o != runtime.Object(into):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s", got.Kind, got.Version, want.Kind))
	}
	return into, nil
}
