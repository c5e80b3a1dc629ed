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
	status := read(o.child("status").fields) // it belongs to a controller: what cannot be read is unknown
	h.State = status.child("provisioning").text("state")
	h.Serial, h.NICs = hardware(status)
	h.MACs = allMACs(spec.text("bootMACAddress"), h.NICs)
	if spec.has("consumerRef") {
		ref := spec.child("consumerRef")
		h.ConsumerRef = ref.text("namespace") + "/" + ref.text("name")
		h.ConsumerKind = kindAndGroup(ref.text("kind"), ref.text("apiVersion"))
	}
	return h, o.err()
}

// kindAndGroup is "Kind.group"; "" if either is missing.
func kindAndGroup(kind, apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if kind == "" || !ok {
		return ""
	}
	return kind + "." + group
}

// hardware reads the identity of the machine from the status, as the inspection found
// it.
func hardware(status object) (serial string, nics []string) {
	found := status.child("hardware")
	for _, nic := range found.first("nics") {
		if mac := nic.text("mac"); mac != "" && !slices.Contains(nics, mac) {
			nics = append(nics, mac)
		}
	}
	return found.child("systemVendor").text("serialNumber"), nics
}

// allMACs returns the MAC address of spec, if there is one, and those of the
// inspection, each once.
func allMACs(boot string, nics []string) (macs []string) {
	if boot != "" {
		macs = append(macs, boot)
	}
	for _, mac := range nics {
		if mac != boot {
			macs = append(macs, mac)
		}
	}
	return macs
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
			kept[key] = value[:min(len(value), maxValue)]
		}
	}
	return kept
}
