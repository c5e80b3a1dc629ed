package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// keysBelow lists the keys of a type of the configuration.
func keysBelow(t reflect.Type, above string) (all []string) {
	for f := range t.Fields() {
		name := f.Tag.Get("yaml")
		switch key := strings.TrimPrefix(above+"."+name, "."); {
		case name == "-":
		case f.Type.Kind() == reflect.Struct:
			all = append(all, keysBelow(f.Type, key)...)
		default:
			all = append(all, key)
		}
	}
	return all
}

// Each key is found to differ, and is live or needs a restart as the table says. A live key
// of the table that exists no more would be a promise that nothing keeps.
func TestEveryKeyIsCompared(t *testing.T) {
	was := Default()
	was.Clusters = []Cluster{{Name: "prod"}}
	var compared []string
	for _, key := range keysBelow(reflect.TypeFor[Config](), "") {
		if key == "clusters" {
			continue
		}
		now := was
		v := reflect.ValueOf(&now).Elem()
		for name := range strings.SplitSeq(key, ".") {
			v = v.FieldByNameFunc(func(f string) bool { return yamlName(v.Type(), f) == name })
		}
		change(v)
		assert.Equal(t, []Change{{Key: key, Live: isLive(key)}}, Changes(was, now), key)
		want := was
		if isLive(key) {
			want = now
		}
		assert.Equal(t, want, TakeLive(was, now), key)
		compared = append(compared, key)
	}
	for _, key := range liveKeys {
		assert.Contains(t, compared, key)
	}
	assert.Empty(t, Changes(was, was))
}

func yamlName(t reflect.Type, field string) string {
	f, _ := t.FieldByName(field)
	return f.Tag.Get("yaml")
}

// change gives a value another one.
func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		v.Set(reflect.ValueOf([]string{"x"}))
	default:
		v.SetInt(v.Int() + 1)
	}
}

// Clusters are compared by their names: their order means nothing, and what differs in one
// is named with it.
func TestClustersAreComparedByName(t *testing.T) {
	a, b := Cluster{Name: "a", Mode: ModeObserve, Namespaces: []string{}}, Cluster{Name: "b"}
	in := func(list ...Cluster) Config { return Config{Clusters: list} }
	assert.Empty(t, Changes(in(a, b), in(b, a)))
	armed := a
	armed.Mode, armed.Namespaces = ModeEvaluate, nil
	assert.Equal(t, []Change{{Key: "clusters.a.mode"}}, Changes(in(a, b), in(b, armed)))
	assert.Equal(t, in(a, b), TakeLive(in(b, a), in(armed, b)), "no cluster changes without a restart")
}

// Clusters that one of two configurations has not are added and removed by a reload, and are no
// keys that differ.
func TestClustersAreAddedAndRemoved(t *testing.T) {
	a, b, c := Cluster{Name: "a", Mode: ModeObserve}, Cluster{Name: "b"}, Cluster{Name: "c", Kubeconfig: "kc"}
	armed := a
	armed.Mode = ModeEvaluate
	running, wanted := Config{Clusters: []Cluster{a, b}}, Config{Clusters: []Cluster{c, armed}}
	added, removed := ClusterChanges(running, wanted)
	assert.Equal(t, []Cluster{c}, added)
	assert.Equal(t, []string{"b"}, removed)
	assert.Equal(t, []Change{{Key: "clusters.a.mode"}}, Changes(running, wanted))
	assert.Equal(t, []Cluster{c, a}, TakeLive(running, wanted).Clusters)
	assert.Equal(t, []Cluster{a, b}, running.Clusters, "the running configuration stays as it is")
	added, removed = ClusterChanges(running, running)
	assert.Empty(t, added)
	assert.Empty(t, removed)
}
