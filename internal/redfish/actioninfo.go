package redfish

import (
	"encoding/json"
	"net/http"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/redfish"
)

// actionInfo reads the allowed reset types of a system that lists them in a
// separate resource. gofish v0.20 has no type for it.
func actionInfo(api *gofish.APIClient, uri string) ([]redfish.ResetType, error) {
	o, _, err := fetch(api, uri)
	if statusOf(err) == http.StatusNotFound {
		return nil, nil // a link to nothing lists nothing
	}
	if err != nil {
		return nil, err
	}
	return listedTypes(o), nil
}

// listedTypes returns the values that an ActionInfo allows for ResetType.
func listedTypes(o object) []redfish.ResetType {
	var parameters []object
	if json.Unmarshal(o["Parameters"], &parameters) != nil {
		return nil
	}
	for _, p := range parameters {
		if p.exact("Name") == "ResetType" {
			return resetTypes(p["AllowableValues"])
		}
	}
	return nil
}
