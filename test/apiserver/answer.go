package apiserver

import (
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// output is how an answer is encoded.
type output struct {
	mediaType string
	info      runtime.SerializerInfo
}

// outputIn is the output in a media type that apimachinery knows.
func outputIn(mediaType string) output {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	return output{mediaType, info}
}

// mediaTypes are those of a kind, or of documents if k is nil, the default first.
func mediaTypes(k *kind) []string {
	if k != nil && k.sample == nil {
		return []string{runtime.ContentTypeJSON}
	}
	return []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}
}

// negotiate chooses the first media type that the client accepts. Tables, metadata alone and aggregated discovery are left
// to the real server: clients that ask for them accept plain answers, too.
func negotiate(r *http.Request, k *kind) (output, error) {
	supported := mediaTypes(k)
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if accept == "" {
		return outputIn(supported[0]), nil
	}
	for _, clause := range strings.Split(accept, ",") {
		mediaType, params, err := mime.ParseMediaType(clause)
		switch {
		case err != nil, params["as"] != "":
		case mediaType == "*/*", mediaType == "application/*":
			return outputIn(supported[0]), nil
		case slices.Contains(supported, mediaType):
			return outputIn(mediaType), nil
		}
	}
	err := apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "", "", 0, false)
	err.ErrStatus.Reason, err.ErrStatus.Details = metav1.StatusReasonNotAcceptable, nil
	err.ErrStatus.Message = "only the following media types are accepted: " + strings.Join(supported, ", ")
	return outputIn(supported[0]), err
}

// encode encodes an object that is not stored, such as a Status.
func (o output) encode(v runtime.Object) ([]byte, error) {
	return runtime.Encode(runtime.WithVersionEncoder{Version: schema.GroupVersion{Version: "v1"}, Encoder: o.info.Serializer, ObjectTyper: scheme.Scheme}, v)
}

func (o output) object(w http.ResponseWriter, code int, v runtime.Object) {
	raw, err := o.encode(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	o.raw(w, code, raw)
}

func (o output) raw(w http.ResponseWriter, code int, raw []byte) {
	w.Header().Set("Content-Type", o.mediaType)
	w.WriteHeader(code)
	_, _ = w.Write(raw) // else the client has gone
}

func (o output) json(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = json.NewEncoder(w).Encode(v) // else the client has gone
}

// fail answers with the Status of an error.
func (o output) fail(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	o.object(w, int(status.Code), status)
}

func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		api = apierrors.NewInternalError(err)
	}
	status := api.Status()
	return &status
}

// call is one request for resources of a kind that is served.
type call struct {
	s    *Server
	k    *kind
	q    *Request
	r    *http.Request
	user user
	out  output
}

// key is that of the object that the request is about.
func (c *call) key(name string) string {
	if c.k.namespaced {
		return c.q.Namespace + "/" + name
	}
	return name
}

// entry answers with a stored object.
func (c *call) entry(w http.ResponseWriter, code int, e *entry) error {
	raw, err := c.k.render(e, c.q.Version, c.out.mediaType)
	if err == nil {
		c.out.raw(w, code, raw)
	}
	return err
}

// object answers with an object that is not stored like this.
func (c *call) object(w http.ResponseWriter, code int, o object) error {
	raw, err := runtime.Encode(c.k.codec(c.out.mediaType, c.q.Version), o)
	if err == nil {
		c.out.raw(w, code, raw)
	}
	return err
}

// largest is the largest body of a request that is read.
const largest = 3 << 20

func (c *call) body() ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(c.r.Body, largest+1))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(body) > largest {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", largest))
	}
	return body, nil
}

// input is the media type of the body.
func (c *call) input(supported []string) (string, error) {
	mediaType, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if c.r.Header.Get("Content-Type") == "" {
		mediaType, err = runtime.ContentTypeJSON, nil
	}
	if err == nil && slices.Contains(supported, mediaType) {
		return mediaType, nil
	}
	refused := apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "", "", 0, false)
	refused.ErrStatus.Reason, refused.ErrStatus.Details = metav1.StatusReasonUnsupportedMediaType, nil
	refused.ErrStatus.Message = "the body of the request was in an unknown format - accepted media types include: " + strings.Join(supported, ", ")
	return "", refused
}

// received decodes the object in the body of a request.
func (c *call) received() (object, error) {
	mediaType, err := c.input(mediaTypes(c.k))
	if err != nil {
		return nil, err
	}
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	return c.decode(body, mediaType)
}

// decode decodes an object of the kind and version of the request.
func (c *call) decode(body []byte, mediaType string) (object, error) {
	want := c.k.gvk(c.q.Version)
	into := c.k.empty(c.q.Version)
	o, got, err := c.k.codec(mediaType, c.q.Version).Decode(body, &want, into)
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", c.k.kind, c.q.Version, c.k.kind, err))
	case got.GroupVersion() != want.GroupVersion():
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), want.GroupVersion()))
	case o != runtime.Object(into):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: converting (%s) to (%s): unknown conversion", got.Kind, got.Version, c.k.kind, got, want))
	}
	if u, custom := into.(*unstructured.Unstructured); custom && u.GetKind() != c.k.kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the kind in the data (%s) does not match the expected kind (%s)", u.GetKind(), c.k.kind))
	}
	return into, nil
}
