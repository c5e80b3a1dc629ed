package sweep

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// A refused account is tried again after accountPause, and after twice as long
// each further time. BMCs lock accounts, and a fence may need the same account.
const (
	accountPause    = 5 * time.Minute
	accountPauseMax = time.Hour
)

// account is one login. All 48 outlets of a PDU may share one.
type account struct{ service, user string }

// refusal records how an account was refused, and until when it is not tried
// again.
type refusal struct {
	password bmc.Secret
	err      error
	at       time.Time
	pause    time.Duration
}

func accountOf(e *entry) account { return account{e.service, e.device().Username} }

// refusedAccount returns the recorded refusal in place of a poll, and until when
// it applies; false if the account may be tried.
func (s *Sweep) refusedAccount(e *entry, now time.Time) (answer, time.Time, bool) {
	r, ok := s.accounts[accountOf(e)]
	until := r.at.Add(r.pause)
	if !ok || !now.Before(until) || r.password.Reveal() != e.device().Password.Reveal() {
		return answer{}, time.Time{}, false
	}
	a := answerOf(e.subject, e.id)
	a.At, a.Err = r.at, r.err
	return a, until, true
}

// skipPoll returns an answer in place of a poll, and until when it applies; false
// if the device may be polled. A poll is skipped if the account was refused, or
// if no password may be sent to the device. // I10
func (s *Sweep) skipPoll(e *entry, now time.Time) (answer, time.Time, bool) {
	if e.subject.Withheld == nil {
		return s.refusedAccount(e, now)
	}
	a := answerOf(e.subject, e.id)
	a.Err = e.subject.Withheld
	return a, now.Add(e.interval(s.opt.Every)), true
}

// noteAccount records whether the device accepted the account.
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

// forgetAccounts drops refusals that have not been used for a long time.
func (s *Sweep) forgetAccounts(now time.Time) {
	for key, r := range s.accounts {
		if now.After(r.at.Add(2 * accountPauseMax)) {
			delete(s.accounts, key)
		}
	}
}
