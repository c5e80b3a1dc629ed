package client

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/fenced/fenced/test/must"
)

// decoded are the events of a stream as a serializer decodes them, and how it ended.
type decodedEvent struct {
	kind   watch.EventType
	object runtime.Object
}

func decodeStream(t *testing.T, of runtime.NegotiatedSerializer, mediaType, stream string) (all []decodedEvent, end string) {
	info, ok := runtime.SerializerInfoForMediaType(of.SupportedMediaTypes(), mediaType)
	require.True(t, ok)
	body := info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(strings.NewReader(stream)))
	d := restwatch.NewDecoder(streaming.NewDecoder(body, info.StreamSerializer.Serializer), of.DecoderToVersion(info.Serializer, nil))
	for {
		kind, object, err := d.Decode()
		if err != nil {
			return all, err.Error()
		}
		all = append(all, decodedEvent{kind, object})
	}
}

// What an API server writes, and what it does not: each is decoded, or refused, as client-go does it.
func TestStreamsOfCustomObjects(t *testing.T) {
	theirs := dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer
	const machine = `{"apiVersion":"machine.openshift.io/v1beta1","kind":"Machine","metadata":{"name":"a \" } \\","resourceVersion":"7"},"spec":{"n":1,"f":1.5,"l":[{},[]]}}`
	for name, stream := range map[string]string{
		"two":                   `{"type":"ADDED","object":` + machine + `}` + "\n" + `{"type":"MODIFIED","object":` + machine + `}` + "\n",
		"bookmark":              `{"type":"BOOKMARK","object":{"apiVersion":"machine.openshift.io/v1beta1","kind":"Machine","metadata":{"resourceVersion":"9"}}}`,
		"error":                 `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","code":410,"reason":"Expired"}}`,
		"an unknown event":      `{"type":"GONE","object":` + machine + `}`,
		"an escaped word":       `{"type":"ADD\u0045D","object":` + machine + `}`,
		"turned":                `{"object":` + machine + `,"type":"ADDED"}`,
		"a space":               `{"type": "ADDED", "object": ` + machine + ` }`,
		"more fields":           `{"type":"ADDED","object":` + machine + `,"more":{}}`,
		"the word twice":        `{"type":"ADDED","object":` + machine + `,"type":"DELETED"}`,
		"no kind":               `{"type":"ADDED","object":{"apiVersion":"a/v1","metadata":{"name":"b"}}}`,
		"no version":            `{"type":"ADDED","object":{"kind":"Machine","metadata":{"name":"b"}}}`,
		"three parts":           `{"type":"ADDED","object":{"apiVersion":"a/b/v1","kind":"Machine","metadata":{"name":"b"}}}`,
		"half a version":        `{"type":"ADDED","object":{"apiVersion":"a/","kind":"Machine","metadata":{"name":"b"}}}`,
		"half a group":          `{"type":"ADDED","object":{"apiVersion":"/v1","kind":"Machine","metadata":{"name":"b"}}}`,
		"a list":                `{"type":"ADDED","object":{"apiVersion":"a/v1","kind":"MachineList","items":[]}}`,
		"no object":             `{"type":"ADDED","object":null}`,
		"text":                  `{"type":"ADDED","object":"x"}`,
		"a key twice":           `{"type":"ADDED","object":{"apiVersion":"a/v1","kind":"M","kind":"N","metadata":{"name":"b"}}}`,
		"other case":            `{"type":"ADDED","object":{"ApiVersion":"a/v1","Kind":"M","metadata":{"name":"b"}}}`,
		"cut":                   `{"type":"ADDED","object":` + machine,
		"no JSON":               `{"type":"ADDED","object":{a}}`,
		"brackets in the words": `{"type":"ADDED","object":{"apiVersion":"a/v1","kind":"M","metadata":{"name":"}\"]"}}}{}`,
	} {
		want, wantEnd := decodeStream(t, theirs, runtime.ContentTypeJSON, stream)
		got, end := decodeStream(t, customStreams{streams{theirs}}, runtime.ContentTypeJSON, stream)
		assert.Equal(t, want, got, name)
		assert.Equal(t, wantEnd, end, name)
	}
}

// A Node loses its images and nothing else, a Pod nothing. Each cut, and each byte changed to any other, is decoded or refused as client-go does it.
func TestStreamsOfNodes(t *testing.T) {
	theirs := rest.CodecFactoryForGeneratedClient(known, codecs).WithoutConversion()
	ours := streams{theirs}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7", Labels: map[string]string{"zone": "b"}}, Spec: corev1.NodeSpec{ProviderID: "c", Unschedulable: true}}
	node.Status = corev1.NodeStatus{Phase: corev1.NodeRunning, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
		NodeInfo: corev1.NodeSystemInfo{SystemUUID: "d"}, VolumesInUse: []corev1.UniqueVolumeName{"e"}}
	less := streamOf(t, theirs, node)
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"f", "g"}, SizeBytes: 1}, {Names: []string{"h"}}}
	whole := streamOf(t, theirs, node)
	want, _ := decodeStream(t, theirs, runtime.ContentTypeProtobuf, less)
	got, end := decodeStream(t, ours, runtime.ContentTypeProtobuf, whole)
	assert.Equal(t, "EOF", end)
	require.Len(t, got, 1)
	assert.Equal(t, want, got)

	pod := streamOf(t, theirs, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, Message: "m", Reason: "r", PodIP: "1", HostIP: "2"}})
	want, _ = decodeStream(t, theirs, runtime.ContentTypeProtobuf, pod)
	got, _ = decodeStream(t, ours, runtime.ContentTypeProtobuf, pod)
	assert.Equal(t, want, got)

	for i := range whole {
		all := []string{whole[:i]}
		for change := range 256 {
			all = append(all, whole[:i]+string([]byte{whole[i] ^ byte(change)})+whole[i+1:])
		}
		for _, broken := range all {
			want, wantEnd := decodeStream(t, theirs, runtime.ContentTypeProtobuf, broken)
			got, end := decodeStream(t, ours, runtime.ContentTypeProtobuf, broken)
			require.Equal(t, withoutImages(want), withoutImages(got), "byte %d", i)
			require.Equal(t, wantEnd == "EOF", end == "EOF", "byte %d: %s, not %s", i, end, wantEnd)
		}
	}
}

func withoutImages(list []decodedEvent) []decodedEvent {
	for _, e := range list {
		if n, ok := e.object.(*corev1.Node); ok {
			n.Status.Images = nil
		}
	}
	return list
}

func streamOf(t *testing.T, of runtime.NegotiatedSerializer, o runtime.Object) string {
	info, _ := runtime.SerializerInfoForMediaType(of.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	var b bytes.Buffer
	to := info.StreamSerializer
	embedded := of.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
	require.NoError(t, restwatch.NewEncoder(streaming.NewEncoder(to.NewFrameWriter(&b), to.Serializer), embedded).Encode(&watch.Event{Type: watch.Added, Object: o}))
	return b.String()
}

func BenchmarkStreamOfMachines(b *testing.B) {
	spec := map[string]any{"disks": []any{}}
	for range 20 {
		spec["disks"] = append(spec["disks"].([]any), map[string]any{"deviceName": "/dev/disk/by-path/pci-0000:00:1f.2-ata-1", "sizeGigabytes": 960})
	}
	object := must.Do(json.Marshal(map[string]any{"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "metadata": map[string]any{"name": "a"}, "spec": spec}))(b)
	one := `{"type":"ADDED","object":` + string(object) + "}\n"
	theirs := dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer
	for name, of := range map[string]runtime.NegotiatedSerializer{"fenced": customStreams{streams{theirs}}, "client-go": theirs} {
		b.Run(name, func(b *testing.B) {
			info, _ := runtime.SerializerInfoForMediaType(of.SupportedMediaTypes(), runtime.ContentTypeJSON)
			body := info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(strings.NewReader(strings.Repeat(one, b.N))))
			d := restwatch.NewDecoder(streaming.NewDecoder(body, info.StreamSerializer.Serializer), of.DecoderToVersion(info.Serializer, nil))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, _, err := d.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
