package redfishsim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// System is one host behind the service: what is true, and what the BMC makes of it.
type System struct {
	srv  *Server
	opts SystemOptions

	// Guarded by srv.mu.
	quirks  Quirks
	on      bool
	due     time.Time // when a change under way is done; zero is none
	dueOn   bool
	lieEnds time.Time // when Quirks.OffThenOn is over
	changes []bool
}

func (s *System) URI() string { return systemsURI + "/" + s.opts.ID }

// Power says whether the host is truly on now, whatever the BMC claims.
func (s *System) Power() bool {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	s.settle()
	return s.on
}

// SetPower switches the host behind the BMC's back, as a human would. It never fails.
func (s *System) SetPower(on bool) error {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	s.on, s.due = on, time.Time{}
	return nil
}

// IgnoreOff makes the BMC accept a power off and do nothing. It never fails.
func (s *System) IgnoreOff(ignore bool) error {
	s.Quirks(func(q *Quirks) { q.IgnoreOff = ignore })
	return nil
}

// LieOff makes the BMC say that the host is off, whatever it is. It never fails.
func (s *System) LieOff(lie bool) error {
	s.Quirks(func(q *Quirks) { q.LieOff = lie })
	return nil
}

// Commands are the power commands that were accepted, in order; true is on.
func (s *System) Commands() []bool {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	return append([]bool(nil), s.changes...)
}

// settle finishes a change whose time has come. srv.mu is held.
func (s *System) settle() {
	if !s.due.IsZero() && !time.Now().Before(s.due) {
		s.on, s.due = s.dueOn, time.Time{}
	}
}

// command accepts a power command and does what the quirks leave of it. srv.mu is held.
func (s *System) command(on bool) {
	s.settle()
	s.changes = append(s.changes, on)
	q := s.quirks
	switch {
	case on && q.IgnoreOn || !on && q.IgnoreOff:
	case !on && q.OffThenOn > 0:
		s.lieEnds = time.Now().Add(q.OffThenOn)
	case q.Lag == 0 || s.on == on:
		s.on, s.due = on, time.Time{}
	default:
		s.due, s.dueOn = time.Now().Add(q.Lag), on
	}
}

// says is PowerState as the BMC gives it, in JSON. srv.mu is held.
func (s *System) says() string {
	s.settle()
	q := s.quirks
	on, changing := s.on, !s.due.IsZero()
	switch {
	case q.SayPower != "":
		return q.SayPower
	case q.LieOff || time.Now().Before(s.lieEnds):
		on = false
	case changing && s.dueOn:
		return `"PoweringOn"`
	case changing:
		return `"PoweringOff"`
	}
	if on {
		return `"On"`
	}
	return `"Off"`
}

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
	case same && q.RefuseSame != 0 && q.RefuseBody != nil:
		w.WriteHeader(q.RefuseSame)
		_, _ = w.Write(q.RefuseBody)
	case same && q.RefuseSame != 0:
		s.srv.fail(w, q.RefuseSame, "InvalidOperationForSystemState", "The system is in that state already.")
	default:
		s.srv.fail(w, http.StatusBadRequest, "ActionParameterNotSupported", "The reset type is not supported.")
	}
}

func (s *System) accept(w http.ResponseWriter, q Quirks) {
	if !q.Task {
		w.WriteHeader(cmp.Or(q.AcceptAs, http.StatusNoContent))
		_, _ = w.Write(q.AcceptBody) // nothing where the maker sends nothing
		return
	}
	task := rootURI + "/TaskService/Tasks/1"
	w.Header().Set("Location", task)
	s.srv.reply(w, http.StatusAccepted, map[string]any{"@odata.id": task, "TaskState": "New"})
}

const (
	managersURI = rootURI + "/Managers"
	managerURI  = managersURI + "/BMC"
	nicsPath    = "/EthernetInterfaces"
)

// serveManager answers a request about the BMC itself; rest is the path below Managers.
func (s *Server) serveManager(w http.ResponseWriter, r *http.Request, f Faults, rest string) {
	switch {
	case r.Method != http.MethodGet || f.NoManager:
		s.missing(w)
	case rest == "":
		s.reply(w, http.StatusOK, map[string]any{
			"@odata.id": managersURI, "@odata.type": "#ManagerCollection.ManagerCollection",
			"Name": "Managers", "Members": []any{link(managerURI)}, "Members@odata.count": 1,
		})
	case managersURI+rest == managerURI:
		s.manager(w, f)
	default:
		s.missing(w)
	}
}

func (s *Server) manager(w http.ResponseWriter, f Faults) {
	s.reply(w, http.StatusOK, map[string]any{
		"@odata.id": managerURI, "@odata.type": "#Manager.v1_19_0.Manager",
		"Id": "BMC", "Name": "Manager", "ManagerType": "BMC",
		"Model": s.opts.Model, "FirmwareVersion": s.opts.Firmware,
		"DateTime": time.Now().Add(f.ClockSkew).UTC().Format(time.RFC3339),
	})
}

// nics answers a request about the host's network interfaces; rest is "" for
// the collection, or the slash and number of one.
func (s *System) nics(w http.ResponseWriter, rest string) {
	macs := s.opts.MACs
	if rest == "" {
		members := make([]any, len(macs))
		for i := range macs {
			members[i] = link(s.URI() + nicsPath + "/" + strconv.Itoa(i+1))
		}
		s.srv.reply(w, http.StatusOK, map[string]any{
			"@odata.id": s.URI() + nicsPath, "@odata.type": "#EthernetInterfaceCollection.EthernetInterfaceCollection",
			"Name": "Ethernet Interfaces", "Members": members, "Members@odata.count": len(members),
		})
		return
	}
	n, err := strconv.Atoi(strings.TrimPrefix(rest, "/"))
	if err != nil || n < 1 || n > len(macs) {
		s.srv.missing(w)
		return
	}
	s.srv.reply(w, http.StatusOK, map[string]any{
		"@odata.id": s.URI() + nicsPath + rest, "@odata.type": "#EthernetInterface.v1_12_0.EthernetInterface",
		"Id": strconv.Itoa(n), "Name": "NIC " + strconv.Itoa(n), "MACAddress": macs[n-1], "PermanentMACAddress": macs[n-1],
	})
}
