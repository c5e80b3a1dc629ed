package sim

import "time"

// mayLeadToACopy lets the kubeconfig lead to another cluster with equal names for some minutes, at
// random, mostly while a run is open: to one that was restored from a backup of this one. All its
// objects have the same UIDs, apart from the Namespace kube-system. w.mu is held. // I27
func (w *World) mayLeadToACopy(now time.Time) {
	often := w.plan.Copies / 3600
	if w.busy() {
		often *= 10
	}
	switch {
	case w.plan.Copies == 0:
	case !w.copyTo.IsZero():
		if now.After(w.copyTo) {
			w.leadHome()
		}
	case w.luck.Float64() < often:
		w.copyTo, w.api.UID = now.Add(between(w.luck, 30*time.Second, 6*time.Minute)), w.home+"-copy"
		w.fault("kubeconfig-of-a-copy", "", "until %s", w.copyTo.Sub(w.began).Round(time.Second))
	}
}

// leadHome ends that. w.mu is held.
func (w *World) leadHome() {
	if !w.copyTo.IsZero() {
		w.note("", "the kubeconfig leads to the cluster again")
	}
	w.copyTo, w.api.UID = time.Time{}, w.home
}
