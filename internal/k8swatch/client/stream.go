package client

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// streams decodes the events of watches in one pass. At the start each object of a cluster comes as such an event. The decoders of client-go parse
// the JSON of an object seven times, and copy a Node in protobuf twice before they decode it, with 50 images that nobody here reads.
// Whatever does not look as an API server writes it is left to them, so that they say what is wrong with it.
type streams struct{ runtime.NegotiatedSerializer }

func (s streams) SupportedMediaTypes() []runtime.SerializerInfo {
	all := slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes())
	for i := range all {
		split := splitJSON
		switch all[i].MediaType {
		case runtime.ContentTypeProtobuf:
			split = splitProtobuf
		case runtime.ContentTypeJSON:
		default:
			continue
		}
		if stream := all[i].StreamSerializer; stream != nil {
			own := *stream
			own.Serializer = eventDecoder{own.Serializer, split}
			all[i].StreamSerializer = &own
		}
	}
	return all
}

// customStreams is streams for the objects of API groups without a type.
type customStreams struct{ streams }

func (s customStreams) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return customDecoder{s.streams.DecoderToVersion(d, gv)}
}

// eventDecoder decodes what is around the object of an event.
type eventDecoder struct {
	runtime.Serializer
	split func(frame []byte) (kind string, object []byte, ok bool)
}

// Decode implements runtime.Decoder. The object is still part of the frame: it is decoded before the next one is read.
func (d eventDecoder) Decode(frame []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok {
		if kind, object, ok := d.split(frame); ok {
			event.Type, event.Object = kind, runtime.RawExtension{Raw: object}
			return event, &schema.GroupVersionKind{}, nil
		}
	}
	return d.Serializer.Decode(frame, defaults, into)
}

// splitJSON splits {"type":"ADDED","object":{...}}. The frame is known to be valid JSON.
func splitJSON(frame []byte) (kind string, object []byte, ok bool) {
	rest, isEvent := bytes.CutPrefix(frame, []byte(`{"type":"`))
	word, object, hasObject := bytes.Cut(rest, []byte(`","object":`))
	if !isEvent || !hasObject || !bytes.HasPrefix(object, []byte("{")) || bytes.ContainsAny(word, `"\`) {
		return "", nil, false
	}
	end := boundedFrames{}
	for i, c := range object {
		if end.follow(c); end.depth == 0 && !end.inString {
			return string(word), object[:i+1], string(object[i+1:]) == "}"
		}
	}
	return "", nil, false
}

// customDecoder decodes an object of an API group in one pass.
type customDecoder struct{ runtime.Decoder }

// Decode implements runtime.Decoder.
func (d customDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		u := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(data, &u.Object); err == nil && isCustom(u) {
			gvk := u.GroupVersionKind()
			return u, &gvk, nil
		}
	}
	return d.Decoder.Decode(data, defaults, into)
}

// isCustom reports whether it is one object of an API group, as against a list, or the Status of an error.
func isCustom(u *unstructured.Unstructured) bool {
	_, isList := u.Object["items"]
	gv, err := schema.ParseGroupVersion(u.GetAPIVersion())
	return !isList && u.GetKind() != "" && err == nil && gv.Group != "" && gv.Version != ""
}

// splitProtobuf splits a metav1.WatchEvent, whose fields are 1, the kind, and 2, a runtime.RawExtension, whose field 1 is the object. A Node loses its images.
func splitProtobuf(frame []byte) (kind string, object []byte, ok bool) {
	word, hasKind := onlyField(frame, 1)
	extension, hasObject := onlyField(frame, 2)
	object, hasRaw := onlyField(extension, 1)
	if !hasKind || !hasObject || !hasRaw {
		return "", nil, false
	}
	if rest, isNode := bytes.CutPrefix(object, []byte(nodePrefix)); isNode {
		less := make([]byte, 0, len(object)/2)
		object, ok = without(append(less, nodePrefix...), rest, imagesOfNode)
		return string(word), object, ok
	}
	return string(word), object, true
}

// nodePrefix is how a Node in protobuf begins: the mark of the encoding, then its version and kind.
const nodePrefix = "k8s\x00\x0a\x0a\x0a\x02v1\x12\x04Node"

// imagesOfNode is the way to them: runtime.Unknown.raw, Node.status, NodeStatus.images.
var imagesOfNode = []protowire.Number{2, 3, 8}

// onlyField returns the bytes of a field that a message has once.
func onlyField(message []byte, number protowire.Number) (value []byte, ok bool) {
	for len(message) > 0 {
		num, kind, n := protowire.ConsumeField(message)
		if n < 0 || num == number && (ok || kind != protowire.BytesType) {
			return nil, false
		}
		if num == number {
			_, _, tag := protowire.ConsumeTag(message)
			value, _ = protowire.ConsumeBytes(message[tag:n])
			ok = true
		}
		message = message[n:]
	}
	return value, ok
}

// without appends a message to out, without the images, which the last number of the path names.
func without(out, message []byte, path []protowire.Number) (less []byte, ok bool) {
	for len(message) > 0 {
		num, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, false
		}
		n := protowire.ConsumeFieldValue(num, kind, message[tag:])
		if n < 0 {
			return nil, false
		}
		switch {
		case num != path[0] || kind != protowire.BytesType:
			out = append(out, message[:tag+n]...)
		case len(path) > 1:
			inner, _ := protowire.ConsumeBytes(message[tag:])
			if inner, ok = without(nil, inner, path[1:]); !ok {
				return nil, false
			}
			out = protowire.AppendBytes(append(out, message[:tag]...), inner)
		default:
			if image, _ := protowire.ConsumeBytes(message[tag:]); !isImage(image) {
				return nil, false
			}
		}
		message = message[tag+n:]
	}
	return out, true
}

// isImage reports whether client-go would decode a corev1.ContainerImage: its names, which are field 1, and its size, field 2.
func isImage(message []byte) bool {
	for len(message) > 0 {
		num, kind, n := protowire.ConsumeField(message)
		if n < 0 || num == 1 && kind != protowire.BytesType || num == 2 && kind != protowire.VarintType {
			return false
		}
		message = message[n:]
	}
	return true
}
