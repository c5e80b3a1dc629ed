package event

import "time"

// KubeEvent is a Kubernetes Event about one object: internal/report words it, and
// internal/k8swatch writes it.
type KubeEvent struct {
	// The object. One without a Namespace is of the whole cluster.
	APIVersion, Kind, Namespace, Name, UID string
	// OnManagementAPI: it is on a separate management API, where its kind alone does not say so.
	OnManagementAPI bool

	At      time.Time
	Warning bool
	// Reason is a CamelCase word, Message a sentence.
	Reason, Message string
}

// RunMark says on a Node or a Machine which run is open on it, as annotations.
type RunMark struct {
	// The object.
	APIVersion, Kind, Namespace, Name, UID string

	// Run is the ID of the run; if it is empty, the object carries no mark, or is to carry
	// none.
	Run string
	// Step is the step that the run was in when the mark was written, and Instance the
	// daemon that carries it out.
	Step, Instance string
}
