package sweep

import "github.com/fenced/fenced/internal/bmc"

// twins gives, for each device that leads to another host's machine, one such
// host: by the same address and outlet, by the same UUID, or by the same MAC
// address. The levels of one host lead to one machine, as they should. // I9
func twins(hosts map[hostID][]*entry) map[*entry]string {
	byTrait := map[string][]*entry{}
	traits := map[*entry][]string{}
	for _, list := range hosts {
		for _, e := range list {
			own, found := traitsOf(e)
			traits[e] = own
			for _, t := range found {
				byTrait[t] = append(byTrait[t], e)
			}
		}
	}
	out := map[*entry]string{}
	for e, own := range traits {
		for _, t := range own {
			for _, other := range byTrait[t] {
				if name := other.subject.Host.Name; name != e.subject.Host.Name && (out[e] == "" || name < out[e]) {
					out[e] = name
				}
			}
		}
	}
	return out
}

// traitsOf gives what names the machine behind e: own as it is written there, and
// found with every other way to write it.
func traitsOf(e *entry) (own, found []string) {
	own = []string{"key " + e.device().Key()}
	found = []string{own[0]}
	if e.last.Err == nil {
		for i, form := range bmc.UUIDForms(e.last.Reading.Identity.UUID) {
			if i == 0 {
				own = append(own, "uuid "+form)
			}
			found = append(found, "uuid "+form)
		}
	}
	for _, text := range e.description.MACs {
		if mac, ok := bmc.NormalizeMAC(text); ok {
			own, found = append(own, "mac "+mac), append(found, "mac "+mac)
		}
	}
	return own, found
}
