package redfishsim

import "time"

// System is one host behind the service: what is true, and what the BMC makes of it.
type System struct {
	srv  *Server
	opts SystemOptions

	// Guarded by srv.mu.
	quirks  Quirks
	on      bool
	due     time.Time // when a change under way is done; zero is none
	dueOn   bool
	lieEnds time.Time // when Quirks.OffThenOn is over
	changes []bool
}

// URI is the path of the system.
func (s *System) URI() string { return systemsURI + "/" + s.opts.ID }

// UUID is the true one.
func (s *System) UUID() string { return s.opts.UUID }

// Power says whether the host is truly on now, whatever the BMC claims.
func (s *System) Power() bool {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	s.settle()
	return s.on
}

// SetPower switches the host behind the BMC's back, as a human would. It never fails.
func (s *System) SetPower(on bool) error {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	s.on, s.due = on, time.Time{}
	return nil
}

// IgnoreOff makes the BMC accept a power off and do nothing. It never fails.
func (s *System) IgnoreOff(ignore bool) error {
	s.Quirks(func(q *Quirks) { q.IgnoreOff = ignore })
	return nil
}

// LieOff makes the BMC say that the host is off, whatever it is. It never fails.
func (s *System) LieOff(lie bool) error {
	s.Quirks(func(q *Quirks) { q.LieOff = lie })
	return nil
}

// Commands are the power commands that were accepted, in order; true is on.
func (s *System) Commands() []bool {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	return append([]bool(nil), s.changes...)
}

// settle finishes a change whose time has come. srv.mu is held.
func (s *System) settle() {
	if !s.due.IsZero() && !time.Now().Before(s.due) {
		s.on, s.due = s.dueOn, time.Time{}
	}
}

// command accepts a power command and does what the quirks leave of it. srv.mu is held.
func (s *System) command(on bool) {
	s.settle()
	s.changes = append(s.changes, on)
	q := s.quirks
	switch {
	case on && q.IgnoreOn || !on && q.IgnoreOff:
	case q.Early && !s.due.IsZero(): // the window in which a command is lost
	case !on && q.OffThenOn > 0:
		s.lieEnds = time.Now().Add(q.OffThenOn)
	case q.Lag == 0 || s.on == on:
		s.on, s.due = on, time.Time{}
	default:
		s.due, s.dueOn = time.Now().Add(q.Lag), on
	}
}

// says is PowerState as the BMC gives it, in JSON. srv.mu is held.
func (s *System) says() string {
	s.settle()
	q := s.quirks
	on, changing := s.on, !s.due.IsZero()
	switch {
	case q.SayPower != "":
		return q.SayPower
	case q.LieOff || time.Now().Before(s.lieEnds):
		on = false
	case changing && q.Early:
		on = s.dueOn
	case changing && s.dueOn:
		return `"PoweringOn"`
	case changing:
		return `"PoweringOff"`
	}
	if on {
		return `"On"`
	}
	return `"Off"`
}
