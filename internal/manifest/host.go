package manifest

import (
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/policy"
)

// BareMetalHost decodes a metal3.io/v1alpha1 BareMetalHost.
func BareMetalHost(fields map[string]any) (policy.Host, error) {
	o := read(fields)
	meta, spec := o.child("metadata"), o.child("spec")
	bmc := spec.child("bmc")
	h := policy.Host{
		Address: bmc.text("address"), CredentialsName: bmc.text("credentialsName"),
		DisableCertificateVerification: bmc.flag("disableCertificateVerification"),
		DisablePowerOff:                spec.flag("disablePowerOff"),
		Online:                         !spec.has("online") || spec.flag("online"), // the API always has it
		ExternallyProvisioned:          spec.flag("externallyProvisioned"),
		Annotations:                    powerAnnotations(meta.textMap("annotations")),
	}
	h.Namespace, h.Name, h.UID, _ = identify(meta, true)
	h.Serial, h.MACs = hardware(o, spec)
	if spec.has("consumerRef") {
		ref := spec.child("consumerRef")
		h.ConsumerRef = ref.text("namespace") + "/" + ref.text("name")
	}
	return h, o.err()
}

// hardware reads the identity of the machine. The status belongs to a controller:
// a part of it that cannot be read counts as unknown.
func hardware(o, spec object) (serial string, macs []string) {
	if mac := spec.text("bootMACAddress"); mac != "" {
		macs = append(macs, mac)
	}
	found := read(o.child("status").fields).child("hardware")
	for _, nic := range found.children("nics") {
		if mac := nic.text("mac"); mac != "" && !slices.Contains(macs, mac) {
			macs = append(macs, mac)
		}
	}
	return found.child("systemVendor").text("serialNumber"), macs
}

// powerAnnotations returns the annotations of others that concern the host's
// power.
func powerAnnotations(all map[string]string) map[string]string {
	var kept map[string]string
	for key, value := range all {
		switch {
		case strings.HasPrefix(key, "reboot.metal3.io"),
			key == "baremetalhost.metal3.io/detached", key == "baremetalhost.metal3.io/paused":
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}
