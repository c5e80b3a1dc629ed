package api

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExportIsWholeOrAnError(t *testing.T) {
	whole := `{"format":"x"}` + "\n" + strings.Repeat("r", 1<<20) + "\n" + `{"records":1,"sha256":"00"}` + "\n"
	get := func(d *fake) (string, error) {
		var out bytes.Buffer
		err := New(serve(t, d, Roles{})).Export(t.Context(), &out)
		return out.String(), err
	}
	got, err := get(&fake{export: whole})
	require.NoError(t, err)
	require.Equal(t, whole, got)

	for _, cut := range []int{1, len(whole) / 2, strings.LastIndex(whole, `{"rec`)} {
		_, err = get(&fake{export: whole[:cut], err: errors.New("the store is gone")})
		require.ErrorContains(t, err, "not whole")
	}
	_, err = get(&fake{err: errors.New("the store is gone")})
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, http.StatusInternalServerError, e.Status)
	require.Equal(t, "the store is gone", e.Message)
}
