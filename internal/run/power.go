package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
)

var errNoSession = errors.New("no session with the BMC")

// powerAccess is one run's access to the power of its host: the session with the present power
// level, which holds the proof of off, and what contradicts a confirmation. Each call gets the
// record of that run as it is now.
type powerAccess struct {
	opt     *Options
	session *power.Session // nil if there is none
	// readError is the error of the last read; nil if it did not fail.
	readError error
	// contradiction names a power level that read On while a person confirms that the host is
	// off. It is "" if none did. // I26
	contradiction string
	// on names the run's own level, which a read that began at onAsked has read On; "" if none has. No confirmation counts yet then, but one
	// that is being taken in may be older. // I26
	on      string
	onAsked time.Time
	// heardFrom is since when an On counts against the confirmation of the time confirmedAt.
	confirmedAt, heardFrom time.Time
	// opening is called before a level is opened with whose devices a session is kept.
	opening func(ctx context.Context) error
}

// look reads the run's power level. It opens a session if there is none, and ends one with
// another level, which proves nothing about this level. openError says why no session could
// be opened. // I1
func (p *powerAccess) look(ctx context.Context, run remediate.Run) (seen remediate.Observation, openError error) {
	if run.Strategy != remediate.PowerCycle {
		return seen, nil
	}
	seen.Level, p.readError = run.Level, nil
	if run.HasConfirmation() {
		p.since(run)
	} else {
		p.contradiction = ""
	}
	if s := p.session; s != nil && (s.Level != run.Level || s.AccountRefused && !p.lockedOut(ctx, run) || p.findsWitness(ctx, run)) {
		p.drop(ctx, run) // the account may be accepted by now, or is another
	}
	if p.session == nil {
		if err := p.open(ctx, run); err != nil {
			seen.PowerError, seen.LevelRefusal, seen.LowerLevelOn = bmc.KindOf(err), hosts.RefusalReason(err, ""), p.contradicts(ctx, run)
			return seen, err
		}
	}
	s := p.session
	seen.Devices, seen.ProofKind = power.LevelText(s.Host, s.Level), remediate.ProofDevice
	if power.IsStrict(s.Host.Levels[s.Level]) {
		seen.ProofKind = remediate.ProofBMC
	}
	asked := time.Now()
	r, err := s.Read(ctx)
	p.readError = err
	seen.Power = r
	if err != nil {
		seen.PowerError, seen.LevelRefusal, seen.LowerLevelOn = bmc.KindOf(err), hosts.RefusalReason(err, ""), p.contradicts(ctx, run)
	} else {
		seen.Identity = identityAnswers[p.opt.Hosts.Identify(ctx, s.Host, s.Level, r, run.Target, run.Manual != nil)]
		p.noteOn(run, r, asked)
		p.contradiction = p.heardOn(run) // an On that the final read or a witness has found is not disproved by a level that answers Unknown // I26
		seen.LowerLevelOn = p.contradiction
	}
	seen.Proof, seen.OffAccepted = s.Proof, s.Accepted.OffAccepted()
	return seen, nil
}

// host is the host with the devices that the session switches; nil without a session.
func (p *powerAccess) host() *bmc.Host {
	if p.session == nil {
		return nil
	}
	return &p.session.Host
}

// open finds the host and opens the run's power level.
func (p *powerAccess) open(ctx context.Context, run remediate.Run) error {
	h, err := p.opt.Hosts.Find(ctx, run.Target)
	if err != nil {
		return err
	}
	if power.KeepsSessions(h, run.Level) {
		if err := p.opening(ctx); err != nil {
			return err
		}
	}
	p.session, err = power.Open(p.opt.Open, h, run.Level, p.opt.Timing)
	return err
}

// drop ends the session, if there is one. What its witnesses have read On since the last look is kept. // I26
func (p *powerAccess) drop(ctx context.Context, run remediate.Run) {
	if p.session != nil {
		p.contradiction = p.heardOn(run)
		p.session.Close(ctx)
		p.session = nil
	}
}

// lockedOut reports whether the session's level refused, a short while ago, the account that is
// configured now. A person may have mended it since the session was opened.
func (p *powerAccess) lockedOut(ctx context.Context, run remediate.Run) bool {
	h := p.session.Host
	if now, err := p.opt.Hosts.Find(ctx, run.Target); err == nil && run.Level < len(now.Levels) {
		h = now
	}
	return p.opt.LockOut.Refuses(h.Levels[p.session.Level]) != nil
}

// findsWitness reports whether a device of a lower level that could not be opened with the session, perhaps because its Secret could not be
// read, can be opened by now, or whether one that refused its account may accept it, or another one, by now. What was proven without it is
// proven again. // I1
func (p *powerAccess) findsWitness(ctx context.Context, run remediate.Run) bool {
	missing, refused := p.session.MissingWitnesses(), p.session.RefusedWitness()
	if missing == 0 && !refused || run.Step != remediate.PowerOff && run.Step != remediate.DeleteNode {
		return false
	}
	h, err := p.opt.Hosts.Find(ctx, run.Target)
	if err != nil || run.Level >= len(h.Levels) {
		return false
	}
	corrected := refused && !p.opt.LockOut.RefusedLately(bmc.Host{Levels: h.Levels[:run.Level]})
	if missing == 0 && !corrected {
		return false
	}
	s, err := power.Open(p.opt.Open, h, run.Level, p.opt.Timing)
	if err != nil {
		return false
	}
	defer s.Close(ctx)
	still := s.MissingWitnesses()
	return still < missing || corrected && still == missing
}

// retryAccount tries the credentials again even if they were refused: a person who gives an
// order may have corrected them.
func (p *powerAccess) retryAccount(ctx context.Context, run remediate.Run) {
	if h, err := p.opt.Hosts.Entry(ctx, run.Target); err == nil {
		p.opt.LockOut.ForgetAccounts(h)
	}
	if p.session != nil && p.session.AccountRefused {
		p.drop(ctx, run)
	}
}

func (p *powerAccess) send(ctx context.Context, run remediate.Run, c bmc.Command) error {
	if p.session == nil {
		return &bmc.Error{Kind: bmc.KindUnreachable, Op: "send " + c.String(), Addr: run.Target.Address, Err: errNoSession}
	}
	p.contradiction = p.heardOn(run) // the session asks its witnesses anew // I26
	return p.session.Send(ctx, c)
}

// proven reports whether what an isolation or a release of pods stands on holds now: saving may have taken time. It is the proof of off, or
// on a confirmation the look that found no contradiction, which must be as fresh as a proof. // I1, I26
func (p *powerAccess) proven(run remediate.Run, a remediate.Action, seen remediate.Observation) bool {
	if !standsOnProof(run, a) {
		return time.Since(seen.At) <= power.ProofMaxAge
	}
	return p.session != nil && p.session.Proof.Proven(time.Now())
}

// proofLost reads once more, and returns why the host is no longer proven off. It is "" if the
// host still is. An On that it reads also contradicts a person's confirmation: no look may see it again. // I1, I26
func (p *powerAccess) proofLost(ctx context.Context, run remediate.Run) string {
	asked := time.Now()
	r, err := p.session.Read(ctx)
	p.noteOn(run, r, asked)
	if err != nil {
		return "the power state cannot be read any more: " + err.Error()
	}
	if !p.session.Accepted.OffAccepted() || !p.session.Proof.Proven(time.Now()) {
		return "the host is no longer proven off"
	}
	return ""
}

// opening puts a session with the BMC on the record before it is opened, so that a process that
// resumes the run knows that this one may have left it open. An error says that too many were left:
// the BMC is not asked then. If the record cannot be saved, the session is opened all the same.
func (w *worker) opening(ctx context.Context) error {
	next := w.run
	var refused error
	next.Sessions, refused = w.run.OpenSession(!w.hadSession, time.Now().UTC())
	if !reflect.DeepEqual(next.Sessions, w.run.Sessions) { // not by commit: the look that may find a wrong clock is still to come // I16
		if saved, err := w.r.opt.Cluster.Save(context.WithoutCancel(ctx), next); err == nil {
			w.run = saved
		}
	}
	if refused != nil {
		return &bmc.Error{Kind: bmc.KindSessions, Op: "open a session", Addr: w.run.Target.Address, Err: refused}
	}
	w.hadSession = true
	return nil
}

// finalReadTimeout bounds the last read of all levels before a Node is isolated on a person's
// confirmation. Most levels do not answer, and the look must stay fresh meanwhile.
const finalReadTimeout = 2 * time.Second

// contradicts returns which power level reads On while a person confirms that the host is off.
// It is for a look that cannot read the run's own level, and reads the lower ones: a level that
// the run has given up may answer again. It is "" if no level reads On. // I26
func (p *powerAccess) contradicts(ctx context.Context, run remediate.Run) string {
	if run.HasConfirmation() && p.contradiction == "" {
		p.contradiction, _ = p.readAll(ctx, run, run.Level) // the final read asks those that cannot be asked now
		p.contradiction = p.heardOn(run)
	}
	return p.contradiction
}

// noteOn keeps an On that the run's own level has read, by a read that began at asked. // I26
func (p *powerAccess) noteOn(run remediate.Run, r bmc.Reading, asked time.Time) {
	if r.State != bmc.On {
		return
	}
	on := power.LevelText(p.session.Host, p.session.Level) + " reads On"
	if run.HasConfirmation() {
		p.contradiction = cmp.Or(p.contradiction, on)
		return
	}
	p.on, p.onAsked = on, asked
}

// readOn returns that the run's own level has read On since the confirmation, before the run had that: a person confirms, and the evidence is
// gathered first. It is "" if it has not. // I26
func (p *powerAccess) readOn(run remediate.Run) string {
	if p.on == "" || p.onAsked.Before(p.since(run)) {
		return ""
	}
	return p.on
}

// since is when a person confirmed that the host is off, or when this process first knew of that, if the clock that told the time was
// ahead. It is by the monotonic clock: the other one may be set. // I16, I26
func (p *powerAccess) since(run remediate.Run) time.Time {
	if at := run.Confirmed.At; !at.Equal(p.confirmedAt) {
		now := time.Now()
		p.confirmedAt, p.heardFrom = at, now.Add(min(0, at.Sub(now)))
	}
	return p.heardFrom
}

// heardOn returns what has read On since a person confirmed that the host is off; "" if nothing has, or nobody does. // I26
func (p *powerAccess) heardOn(run remediate.Run) string {
	if !run.HasConfirmation() {
		return ""
	}
	return cmp.Or(p.contradiction, p.readOn(run), p.witnessOn(run), p.checkedOn(run))
}

// checkedOn returns which device of the host a BMC health check has read On since the confirmation, by itself or for a person; "" if none. // I26
func (p *powerAccess) checkedOn(run remediate.Run) string {
	if p.opt.LastChecks == nil || run.Target.Host == "" {
		return ""
	}
	for _, last := range p.opt.LastChecks(p.opt.Name, run.Target.Host) {
		if last.LastOn.After(p.since(run)) {
			return fmt.Sprintf("the BMC health check found that power level %d reads On", last.Level+1)
		}
	}
	return ""
}

// witnessOn returns which witness of the session has read On since the confirmation: a BMC that
// answers now and then may have answered only the session. It is "" if none has. // I26
func (p *powerAccess) witnessOn(run remediate.Run) string {
	if p.session == nil {
		return ""
	}
	name := p.session.LowerLevelOn(p.since(run))
	if name == "" {
		return ""
	}
	return name + " reads On"
}

// find finds the run's host. What stood in Secrets the session knows already, so that no slow API server keeps anybody from asking a BMC; they
// are read anew once a BMC has refused an account: a person may have corrected it. // I26
func (p *powerAccess) find(ctx context.Context, run remediate.Run) (bmc.Host, error) {
	if s := p.session; s != nil && s.MissingWitnesses() == 0 {
		h, err := p.opt.Hosts.FindBare(ctx, run.Target)
		if err != nil {
			return h, err
		}
		if h.SameButAccess(&s.Host) && !p.opt.LockOut.RefusedLately(s.Host) {
			return h.WithSecretsOf(&s.Host), nil
		}
	}
	return p.opt.Hosts.Find(ctx, run.Target)
}

// readAll reads the power levels below end at the same time, and names one that reads On. A host
// without a usable entry has no level to read, as when the person confirmed. An error means that
// the search for the entry was interrupted.
func (p *powerAccess) readAll(ctx context.Context, run remediate.Run, end int) (on string, err error) {
	h, err := p.find(ctx, run)
	if err != nil || ctx.Err() != nil { // a Secret that was not read in time says nothing about its BMC
		return "", ctx.Err()
	}
	results := make([]string, min(end, len(h.Levels)))
	var reads sync.WaitGroup
	for i := range results {
		reads.Go(func() {
			if on := power.OnAmong(ctx, p.opt.Open, h, i, p.opt.Timing); on != "" {
				results[i] = fmt.Sprintf("power level %d (%s) reads On", i+1, on)
			}
		})
	}
	reads.Wait()
	if i := slices.IndexFunc(results, func(s string) bool { return s != "" }); i >= 0 {
		return results[i], nil
	}
	return "", nil
}

// finalRead reads once more what an isolation or a release of pods stands on, and returns why it must not be done: the device of
// the proof, or all levels before a Node is isolated on a person's confirmation. The device is read if the proof would end before
// the write is checked for the first time: the API server may carry it out until then. A proof that has ended already is for others to
// refuse. The read has all its time: nothing is under way that an old proof would let go on. // I1
func (p *powerAccess) finalRead(ctx context.Context, run remediate.Run, a remediate.Action) string {
	switch {
	case standsOnProof(run, a):
		now := time.Now()
		if p.session == nil || !p.session.Proof.Proven(now) || p.session.Proof.Proven(now.Add(proofLeft)) {
			return ""
		}
		return p.proofLost(ctx, run)
	case a == remediate.IsolateNode:
		return p.finalReadOfAll(ctx, run)
	}
	return ""
}

// standsOnProof reports whether the host must be proven off by a power level when an action is carried out, not by a person. // I1, I26
func standsOnProof(run remediate.Run, a remediate.Action) bool {
	return a == remediate.ReleasePods || a == remediate.IsolateNode && !run.IsolatesOnConfirmation()
}

// proofLeft is how long a proof must still last when a write begins: until the first check of the write, and for the read of that check.
const proofLeft = 2 * writeCheck

// finalReadOfAll reads all levels, the run's as well. The next look shows a contradiction to
// remediate.Next, even if no level answers then. // I26
func (p *powerAccess) finalReadOfAll(ctx context.Context, run remediate.Run) string {
	reading, cancel := context.WithTimeout(ctx, finalReadTimeout)
	defer cancel()
	on, err := p.readAll(reading, run, run.Level+1)
	p.contradiction = cmp.Or(on, p.heardOn(run))
	switch {
	case p.contradiction != "":
		return p.contradiction
	case ctx.Err() != nil: // no level was read
		return "it is to stop"
	case err != nil:
		return "no BMC could be asked once more: " + err.Error()
	}
	return ""
}

// identityAnswers says whether a verdict means that the BMC is the host's. Every other one means
// that this cannot be told.
var identityAnswers = map[guard.IdentityVerdict]remediate.Answer{
	guard.IdentityMatches: remediate.Yes,
	guard.IdentityDiffers: remediate.No,
}
