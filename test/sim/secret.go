package sim

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// marker is part of every password of a world, and of nothing else in it.
func (p Plan) marker() string { return fmt.Sprintf("Hush%016xHush", (p.Seed+1)*0x9e3779b97f4a7c15) }

// password is that of a host, or the same for all, as in many fleets.
func (h *host) password() bmc.Secret {
	if h.w.plan.OnePassword {
		return h.w.password("all")
	}
	return h.w.password(h.Name)
}

func (w *World) password(of string) bmc.Secret { return bmc.NewSecret(w.plan.marker() + of) }

// markers returns the forms of a text that may appear: unchanged, and in base64
// at any offset.
func markers(text string) []string {
	forms := []string{text}
	for before := range 3 {
		coded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + text))
		forms = append(forms, coded[(before*4+2)/3:len(coded)-4]) // without the characters that neighbours affect
	}
	return forms
}

// search looks for passwords in what fenced has written or printed. w.mu is
// held. // I25
func (w *World) search(where, node string, texts ...string) {
	for _, text := range texts {
		w.outcome.Cases["I25 texts searched"]++
		for _, m := range w.markers {
			if strings.Contains(text, m) {
				w.violate("I25", node, "%s tells a password", where)
			}
		}
	}
}
