package client

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

// OwnRequests is the kind of the requests that fenced carries out. It is watched on
// each API server, whatever the checks name.
var OwnRequests = schema.GroupKind{Group: FencedGroup, Kind: policy.FencedRemediationKind}

// Metal3Requests are those of Metal3's provider for the Cluster API.
var Metal3Requests = schema.GroupKind{Group: manifest.Metal3RequestGroup, Kind: manifest.Metal3RequestKind}

// RequestOf returns the kind of requests that a template makes; none if the
// template cannot be a remediator's.
func RequestOf(t policy.Template) (schema.GroupKind, string) {
	gv, err := schema.ParseGroupVersion(t.APIVersion)
	name, isTemplate := strings.CutSuffix(t.Kind, "Template")
	kind := schema.GroupKind{Group: gv.Group, Kind: name}
	if err != nil || !isTemplate || name == "" || !remediates(kind) {
		return schema.GroupKind{}, ""
	}
	return kind, gv.Version
}

// remediates reports whether a kind can be that of remediation requests. The
// kinds of Kubernetes itself and of known API groups cannot be: a Machine must
// not be added to and removed from the view as a request.
func remediates(kind schema.GroupKind) bool {
	switch kind.Group {
	case MachineGroup, ClusterGroup, HostGroup, Medik8sGroup, ConfigGroup:
		return false
	case FencedGroup:
		return kind.Kind == policy.FencedRemediationKind
	}
	return strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io")
}

// HeldFor begins what follows in the annotation: the run for which the request is held, as request.Holder writes it.
const HeldFor = "run/"

// The annotations that say on a Node and a Machine that fenced remediates it.
const (
	RunAnnotation      = "fenced.io/run"
	StepAnnotation     = "fenced.io/step"
	InstanceAnnotation = "fenced.io/instance"
)

// MarkKeys are all of these.
var MarkKeys = []string{RunAnnotation, StepAnnotation, InstanceAnnotation}

// MaxMarkValue limits what is kept of an annotation: anybody may have written it.
const MaxMarkValue = 128
