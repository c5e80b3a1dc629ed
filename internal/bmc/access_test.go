package bmc

import (
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each field counts: of the host, and of a device unless it is of its Access. A field that is added must be compared, too.
func TestSameButAccess(t *testing.T) {
	one := func() *Host { return &Host{Levels: []Level{{Devices: make([]Device, 2)}}} }
	values := map[reflect.Type]any{
		reflect.TypeFor[string](): "x", reflect.TypeFor[bool](): true, reflect.TypeFor[Driver](): DriverIPMI, reflect.TypeFor[Endpoint](): Endpoint{Host: "x"},
		reflect.TypeFor[map[string]string](): map[string]string{"x": "y"}, reflect.TypeFor[map[string]Secret](): map[string]Secret{"x": {}},
		reflect.TypeFor[Secret](): NewSecret("x"), reflect.TypeFor[TLS](): TLS{CA: "x"}, reflect.TypeFor[[]int](): []int{3},
		reflect.TypeFor[error](): errors.New("x"), reflect.TypeFor[*Networks](): &Networks{}, reflect.TypeFor[[]Level](): []Level{},
	}
	for _, whole := range []bool{true, false} {
		kind := reflect.TypeFor[Device]()
		if whole {
			kind = reflect.TypeFor[Host]()
		}
		for i := range kind.NumField() {
			field, changed := kind.Field(i), one()
			v := reflect.ValueOf(&changed.Levels[0].Devices[1]).Elem()
			if whole {
				v = reflect.ValueOf(changed).Elem()
			}
			require.Contains(t, values, field.Type, field.Name)
			v.Field(i).Set(reflect.ValueOf(values[field.Type]))
			_, ofAccess := reflect.TypeFor[Access]().FieldByName(field.Name)
			assert.Equal(t, ofAccess && !whole, one().SameButAccess(changed), field.Name)
			assert.Equal(t, ofAccess && !whole, changed.SameButAccess(one()), field.Name)
		}
	}
	shorter := one()
	shorter.Levels[0].Devices = shorter.Levels[0].Devices[:1]
	assert.False(t, one().SameButAccess(shorter))
	assert.False(t, shorter.SameButAccess(one()))
	assert.True(t, one().SameButAccess(one()))
}
