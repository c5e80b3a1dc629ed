package policy

import (
	"fmt"
	"strings"
)

const (
	hostScheme     = "baremetalhost:///"
	hostAnnotation = "metal3.io/BareMetalHost"
)

// HostFor finds the BareMetalHost of a Machine: by providerID first, because
// the controller that provisioned it wrote that, else by annotation. The error
// says what was looked for.
func HostFor(m Machine, hosts []Host) (Host, error) {
	namespace, name, uid, err := hostRef(m)
	if err != nil {
		return Host{}, err
	}
	for _, h := range hosts {
		if h.Namespace != namespace || h.Name != name {
			continue
		}
		if uid != "" && h.UID != uid {
			return Host{}, fmt.Errorf("BareMetalHost %s/%s is another one than the Machine's: uid %s, not %s", namespace, name, h.UID, uid)
		}
		return h, nil
	}
	return Host{}, fmt.Errorf("BareMetalHost %s/%s does not exist", namespace, name)
}

// hostRef is the BareMetalHost that a Machine names; uid may be empty.
func hostRef(m Machine) (namespace, name, uid string, err error) {
	if m.ProviderID != "" {
		rest, ok := strings.CutPrefix(m.ProviderID, hostScheme)
		parts := strings.Split(rest, "/")
		if !ok || len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
			return "", "", "", fmt.Errorf("the Machine's providerID %q names no BareMetalHost", m.ProviderID)
		}
		if len(parts) == 3 {
			uid = parts[2]
		}
		return parts[0], parts[1], uid, nil
	}
	ref := m.Annotations[hostAnnotation]
	if ref == "" {
		return "", "", "", fmt.Errorf("the Machine has neither a providerID nor the annotation %s", hostAnnotation)
	}
	namespace, name, ok := strings.Cut(ref, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", "", fmt.Errorf("the annotation %s: %q is not namespace/name", hostAnnotation, ref)
	}
	return namespace, name, "", nil
}
