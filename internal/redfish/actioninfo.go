package redfish

import (
	"encoding/json"
	"net/http"

	"github.com/stmcginnis/gofish/common"
	"github.com/stmcginnis/gofish/redfish"

	"github.com/fenced/fenced/internal/bmc"
)

// actionInfo reads the allowed reset types of a system that lists them in a
// resource of their own; gofish v0.20 knows no such type.
func actionInfo(api common.Client, uri string) ([]redfish.ResetType, error) {
	resp, err := api.Get(uri)
	if statusOf(err) == http.StatusNotFound {
		return nil, nil // a dangling link lists nothing
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var info struct {
		Parameters []struct {
			Name            string
			AllowableValues []redfish.ResetType
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil {
		return nil, failf(bmc.KindProtocol, "read allowed reset types at %s: %w", uri, err)
	}
	for _, p := range info.Parameters {
		if p.Name == "ResetType" {
			return p.AllowableValues, nil
		}
	}
	return nil, nil
}
