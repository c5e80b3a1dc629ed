package lead

import "fmt"

// StepAside says whether this instance leaves the cluster to the others. It returns false if the
// store has no other users.
func (l *Lead) StepAside(aside bool) (shared bool) { return l.opt.Owners.StepAside(l.opt.Name, aside) }

// Next says who owns the cluster if this instance leaves it to the others.
func (l *Lead) Next() string {
	o := l.opt.Owners.Owner(l.opt.Name)
	switch {
	case o.Epoch != 0 && o.Instance != l.opt.Instance:
		return fmt.Sprintf("instance %s owns the cluster", o.Instance)
	case o.Standby != "" && o.Standby != l.opt.Instance:
		return fmt.Sprintf("instance %s stands by and takes the cluster over", o.Standby)
	}
	return "no other instance stands by; start one on another host"
}
