package sweep

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// A refused account is asked again after accountPause, twice as long each time:
// BMCs lock accounts, and the same one may be needed for a fence.
const (
	accountPause    = 5 * time.Minute
	accountPauseMax = time.Hour
)

// account is one login: that of 48 outlets of a PDU is one.
type account struct{ service, user string }

// refusal is how an account was refused, and until when it is not tried.
type refusal struct {
	password bmc.Secret
	err      error
	at       time.Time
	pause    time.Duration
}

func accountOf(e *entry) account { return account{e.service, e.device().Username} }

// barred gives, in place of a look, the refusal of an account that is not to be
// tried yet, and until when.
func (s *Sweep) barred(e *entry, now time.Time) (answer, time.Time, bool) {
	r, ok := s.accounts[accountOf(e)]
	until := r.at.Add(r.pause)
	if !ok || !now.Before(until) || r.password.Reveal() != e.device().Password.Reveal() {
		return answer{}, time.Time{}, false
	}
	a := answerOf(e.subject, e.id)
	a.At, a.Err = r.at, r.err
	return a, until, true
}

// spared gives, in place of a look, why a device is not asked now, and until when:
// its account was refused, or no password may be sent there. // I10
func (s *Sweep) spared(e *entry, now time.Time) (answer, time.Time, bool) {
	if e.subject.Withheld == nil {
		return s.barred(e, now)
	}
	a := answerOf(e.subject, e.id)
	a.Err = e.subject.Withheld
	return a, now.Add(e.pause(s.opt.Every)), true
}

// noteAccount remembers whether the device took its account.
func (s *Sweep) noteAccount(e *entry, a answer) {
	key := accountOf(e)
	if !bmc.KindOf(a.Err).RefusesAccount() {
		if last, ok := s.accounts[key]; ok && a.Err == nil && last.password.Equal(a.device().Password) {
			delete(s.accounts, key)
		}
		return
	}
	pause := accountPause
	if last, ok := s.accounts[key]; ok && last.password.Reveal() == a.device().Password.Reveal() {
		pause = min(2*last.pause, accountPauseMax)
	}
	s.accounts[key] = refusal{password: a.device().Password, err: a.Err, at: a.At, pause: pause}
}

// forgetAccounts drops what nobody asked about for long.
func (s *Sweep) forgetAccounts(now time.Time) {
	for key, r := range s.accounts {
		if now.After(r.at.Add(2 * accountPauseMax)) {
			delete(s.accounts, key)
		}
	}
}
