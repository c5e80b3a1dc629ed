package redfishsim

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

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
	s.mu.Lock()
	booted := s.booted
	s.mu.Unlock()
	s.reply(w, http.StatusOK, map[string]any{
		"@odata.id": managerURI, "@odata.type": "#Manager.v1_19_0.Manager",
		"Id": "BMC", "Name": "Manager", "ManagerType": "BMC",
		"Model": s.opts.Model, "FirmwareVersion": s.opts.Firmware,
		"DateTime":      time.Now().Add(f.ClockSkew).UTC().Format(time.RFC3339),
		"LastResetTime": booted.UTC().Format(time.RFC3339),
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
