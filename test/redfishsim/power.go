package redfishsim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	resetPath      = "/Actions/ComputerSystem.Reset"
	actionInfoPath = "/ResetActionInfo"
)

var usualResetTypes = []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart"}

// serve answers a request about one system; rest is the path below its URI.
func (s *System) serve(w http.ResponseWriter, r *http.Request, f Faults, rest string) {
	if f.RedirectTo != "" {
		http.Redirect(w, r, f.RedirectTo+r.URL.Path, cmp.Or(f.RedirectStatus, http.StatusTemporaryRedirect))
		return
	}
	s.srv.mu.Lock()
	q := s.quirks
	s.srv.mu.Unlock()
	switch {
	case r.Method == http.MethodGet && rest == "" && q.HangRead:
		s.srv.pause(r, time.Hour)
	case r.Method == http.MethodGet && rest == "" && q.RefuseRead != 0:
		s.srv.fail(w, q.RefuseRead, "InternalError", "The system cannot be read.")
	case r.Method == http.MethodGet && rest == "":
		s.show(w, f)
	case r.Method == http.MethodGet && rest == actionInfoPath:
		s.actionInfo(w)
	case r.Method == http.MethodGet && (rest == nicsPath || strings.HasPrefix(rest, nicsPath+"/")):
		s.nics(w, strings.TrimPrefix(rest, nicsPath))
	case r.Method == http.MethodPost && rest == resetPath:
		s.reset(w, r)
	default:
		s.srv.missing(w)
	}
}

func (s *System) show(w http.ResponseWriter, f Faults) {
	s.srv.mu.Lock()
	q := s.quirks
	state := json.RawMessage(s.says())
	s.srv.mu.Unlock()
	system := map[string]any{
		"@odata.id": s.URI(), "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
		"Id": s.opts.ID, "Name": "System " + s.opts.ID, "SystemType": "Physical",
		"UUID": s.opts.UUID, "SerialNumber": s.opts.Serial, "PowerState": state,
		"Status":       map[string]string{"State": "Enabled", "Health": "OK"},
		"Manufacturer": "Simulated", "Model": "Host", "PowerRestorePolicy": s.opts.RestorePolicy,
		"EthernetInterfaces": link(s.URI() + nicsPath),
	}
	if !f.NoManager {
		system["Links"] = map[string]any{"ManagedBy": []any{link(managerURI)}}
	}
	if q.UUID != "" {
		system["UUID"] = q.UUID
	}
	if q.NoUUID {
		delete(system, "UUID")
	}
	if q.ODataType != "" {
		system["@odata.type"] = q.ODataType
	}
	if !q.NoReset {
		reset := map[string]any{"target": cmp.Or(q.Target, s.URI()+resetPath)}
		switch {
		case q.ActionInfo:
			reset["@Redfish.ActionInfo"] = s.URI() + actionInfoPath
		case !q.NoResetTypes:
			reset["ResetType@Redfish.AllowableValues"] = q.resetTypes()
		}
		system["Actions"] = map[string]any{"#ComputerSystem.Reset": reset}
	}
	if f.HugeBody > 0 {
		system["Description"] = strings.Repeat("x", f.HugeBody)
	}
	if etag := q.etag(state); etag != "" {
		w.Header().Set("ETag", etag)
	}
	s.srv.reply(w, http.StatusOK, withMembers(system, q.Repeat))
}

// etag is that of a system which says this state: it changes with the state, so a
// client that sends it may be late.
func (q Quirks) etag(state json.RawMessage) string {
	switch q.ETag {
	case "":
		return fmt.Sprintf(`W/"%x"`, state)
	case "none":
		return ""
	}
	return q.ETag
}

// mayAct says whether the precondition of a reset is met.
func (q Quirks) mayAct(ifMatch, etag string) bool {
	if q.NeedETag == 0 {
		return ifMatch == ""
	}
	return ifMatch != "" && ifMatch == etag
}

// withMembers adds members in JSON, whatever their names are.
func withMembers(o map[string]any, more string) any {
	if more == "" {
		return o
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic("redfishsim: an answer of our own does not marshal: " + err.Error())
	}
	return json.RawMessage(string(b[:len(b)-1]) + "," + more + "}")
}

func (s *System) actionInfo(w http.ResponseWriter) {
	s.srv.mu.Lock()
	types := s.quirks.resetTypes()
	s.srv.mu.Unlock()
	s.srv.reply(w, http.StatusOK, map[string]any{
		"@odata.id": s.URI() + actionInfoPath, "@odata.type": "#ActionInfo.v1_3_0.ActionInfo",
		"Id": "ResetActionInfo", "Name": "Reset Action Info",
		"Parameters": []any{map[string]any{"Name": "ResetType", "Required": true, "DataType": "String", "AllowableValues": types}},
	})
}

func (q Quirks) resetTypes() []string {
	if len(q.ResetTypes) > 0 {
		return q.ResetTypes
	}
	return usualResetTypes
}

// reset answers the power action.
func (s *System) reset(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	var ask struct{ ResetType string }
	if err != nil || json.Unmarshal(body, &ask) != nil {
		s.srv.fail(w, http.StatusBadRequest, "MalformedJSON", "The request body is not JSON.")
		return
	}
	on, known := map[string]bool{"On": true, "ForceOn": true, "ForceOff": false}[ask.ResetType]

	s.srv.mu.Lock()
	q := s.quirks
	s.settle()
	same := s.on == on && s.due.IsZero()
	mayAct := q.mayAct(r.Header.Get("If-Match"), q.etag(json.RawMessage(s.says())))
	accepted := known && slices.Contains(q.resetTypes(), ask.ResetType) && !q.NoReset &&
		mayAct && q.RefuseReset == 0 && (!same || q.RefuseSame == 0)
	if accepted {
		s.command(on)
	}
	s.srv.mu.Unlock()

	switch {
	case accepted && q.DropReset:
		panic(http.ErrAbortHandler) // net/http cuts the connection
	case accepted:
		s.srv.pause(r, q.HangReset)
		s.accept(w, q)
	case !mayAct && r.Header.Get("If-Match") != "":
		s.srv.fail(w, http.StatusPreconditionFailed, "PreconditionFailed", "The ETag does not match.")
	case !mayAct:
		s.srv.fail(w, q.NeedETag, "PreconditionHeaderMissing", "The request did not provide the required precondition.")
	case q.RefuseReset != 0:
		s.srv.fail(w, q.RefuseReset, "GeneralError", "The action is refused."+s.srv.echo(r.Header.Get("X-Auth-Token")))
	case same && q.RefuseSame != 0:
		s.srv.fail(w, q.RefuseSame, "InvalidOperationForSystemState", "The system is in that state already.")
	default:
		s.srv.fail(w, http.StatusBadRequest, "ActionParameterNotSupported", "The reset type is not supported.")
	}
}

func (s *System) accept(w http.ResponseWriter, q Quirks) {
	if !q.Task {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	task := rootURI + "/TaskService/Tasks/1"
	w.Header().Set("Location", task)
	s.srv.reply(w, http.StatusAccepted, map[string]any{"@odata.id": task, "TaskState": "New"})
}
