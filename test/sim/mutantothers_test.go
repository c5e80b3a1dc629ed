package sim

import (
	"context"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
)

// handedOver is a world of requests to other remediators, with which people and controllers meddle.
func handedOver(p *Plan) { few(p); p.Others, p.Meddles = true, 60 }

// escalates is such a world with several remediators for one host.
func escalates(p *Plan) { handedOver(p); p.Escalates, p.Meddles = true, 5 }

// blindHandovers sees no request that was made.
type blindHandovers struct{ engine.Handovers }

func (blindHandovers) Read(context.Context, escalate.Object) (*policy.Request, error) {
	return nil, nil
}

// impatientHandovers takes every remediator for one that has not begun.
type impatientHandovers struct{ engine.Handovers }

func (i impatientHandovers) Read(ctx context.Context, o escalate.Object) (*policy.Request, error) {
	live, err := i.Handovers.Read(ctx, o)
	if live != nil {
		live.Begun, live.Conditions = false, nil
	}
	return live, err
}

func (i impatientHandovers) Delete(ctx context.Context, o escalate.Object, _ *policy.Request) (wrote bool, err error) {
	live, err := i.Handovers.Read(ctx, o)
	if live == nil {
		return false, err
	}
	return i.Handovers.Delete(ctx, o, live)
}

// hoardingHandovers only says that it deletes requests.
type hoardingHandovers struct{ engine.Handovers }

func (hoardingHandovers) Delete(context.Context, escalate.Object, *policy.Request) (wrote bool, err error) {
	return true, nil
}

func hands(wrap func(engine.Handovers) engine.Handovers) Defect {
	return options(func(o *engine.Options) { o.Clusters[0].Handovers = wrap(o.Clusters[0].Handovers) })
}

var othersMutants = []mutant{
	{"does not see what it made", "I22", escalates, hands(func(h engine.Handovers) engine.Handovers { return blindHandovers{h} })},
	{"does not wait for who is at work", "I22", escalates, hands(func(h engine.Handovers) engine.Handovers { return impatientHandovers{h} })},
	{"whatever has the name is its own", "I22", handedOver, Defect{OwnsWhateverIsThere: true}},
	{"asks beside the check's own controller", "I22", func(p *Plan) { escalates(p); p.Meddles = 60 }, Defect{SeesNoController: true}},
	{"asks without the Lease of medik8s", "I22", func(p *Plan) { handedOver(p); p.Medik8s = true }, Defect{TakesNoLocks: true}},
	{"the record of a request is only said to be stored", "I19", handedOver, Defect{StoresNoAsked: true}},
	{"any number of requests at once", "I11", func(p *Plan) { crowded(p); p.Others = true }, options(func(o *engine.Options) {
		o.Guards.MaxInFlight, o.Guards.MaxInFlightPerZone = 100, 100
	})},
	{"nothing is recorded of requests", "I24", handedOver, options(func(o *engine.Options) { o.Record = nil })},
	{"a start finds no requests", "L1", func(p *Plan) { handedOver(p); p.Kill = 0.005 }, Defect{ForgetsAsked: true}},
	{"leaves what it made behind", "L1", handedOver, hands(func(h engine.Handovers) engine.Handovers { return hoardingHandovers{h} })},
}
