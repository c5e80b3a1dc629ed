package manifest

import (
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
	if spec.has("consumerRef") {
		ref := spec.child("consumerRef")
		h.ConsumerRef = ref.text("namespace") + "/" + ref.text("name")
	}
	return h, o.err()
}

// powerAnnotations keeps what others have to say about the host's power.
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
