package sweep

import (
	"errors"
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
)

// fill sets every field of a value that is zero, each to something of its own.
func fill(t *testing.T, v reflect.Value, next *int) {
	*next++
	switch x := v.Addr().Interface().(type) {
	case *bmc.Secret:
		*x = bmc.NewSecret(strconv.Itoa(*next))
		return
	case *error:
		*x = errors.New(strconv.Itoa(*next))
		return
	case **bmc.Networks:
		*x = &bmc.Networks{}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strconv.Itoa(*next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*next))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), next)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), next)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), next)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, next)
		fill(t, value, next)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		require.Fail(t, "a field of a kind that this test does not know", v.Type().String())
	}
}

// What is kept of a subject is all of it: no field may be lost, whatever is shared.
func TestSubjectIsKeptWhole(t *testing.T) {
	var s hosts.Subject
	next := 0
	fill(t, reflect.ValueOf(&s).Elem(), &next)
	s.Err = nil // one that cannot be used is not kept
	bare := s.Host
	bare.Levels = []bmc.Level{{Devices: make([]bmc.Device, 2)}, {Devices: make([]bmc.Device, 2)}}
	for i, l := range s.Host.Levels {
		for j, d := range l.Devices {
			bare.Levels[i].Devices[j] = d.With(bmc.Access{Username: "as it is written"})
		}
	}
	other := bare
	other.Source = "elsewhere"
	missing := bare
	missing.Levels = bare.Levels[:1]
	for name, tc := range map[string]struct {
		indexed *bmc.Host
		shared  bool
	}{"indexed": {&bare, true}, "indexed as it was before": {&other, false}, "indexed with other devices": {&missing, false}, "not indexed": {nil, false}} {
		s.Bare = tc.indexed
		x := newSubject(s, nil)
		assert.Equal(t, tc.shared, x.bare == &bare, name)
		got := x.whole()
		s.Bare = got.Bare
		assert.Equal(t, s, got, name)
		assert.Equal(t, s.Host.Levels[1].Devices[1], x.device(deviceID{1, 1}), name)
		next := newSubject(s, x.access)
		assert.Same(t, &x.access[0], &next.access[0], "the same Access is kept once")
		assert.Equal(t, "as it is written", bare.Levels[0].Devices[0].Username, "nobody changes what is shared")
	}
	changed := s
	changed.Host = s.Host.WithAccesses(s.Host.Accesses())
	changed.Host.Levels[1].Devices[1].Password = bmc.NewSecret("another")
	was := newSubject(s, nil)
	assert.Equal(t, changed.Host, newSubject(changed, was.access).whole().Host, "another password is not shared")
}
