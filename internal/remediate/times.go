package remediate

import "time"

// Times that are part of the safety argument and therefore not configurable.
const (
	freshFor     = 2 * time.Second  // age of the reads that justify step 1 // I4
	leaseRecent  = 60 * time.Second // a Lease renewed this shortly before Off ...
	leaseStill   = 15 * time.Second // ... must stand still this long after it, at least // I5
	wholeAnswer  = 15 * time.Second // the whole time of a level's answer, beside a person's word
	dwell        = 5 * time.Second  // between proof and On: BMCs drop an On sent earlier
	offSettle    = 15 * time.Second // from giving up to a believed On: BMCs switch off late
	healthyFor   = 5 * time.Minute  // before a Held run ends by itself
	poll         = time.Second      // between two looks
	idlePoll     = 10 * time.Second // between two looks at a Held run
	resendPower  = 10 * time.Second // between two equal power commands
	resendWrite  = 2 * time.Second  // between two equal writes to the cluster
	resendHeldOn = time.Minute      // between two On commands of a Held run
	lowerWait    = 2 * time.Minute  // for a level below the one that cut the host off: a BMC boots with its mains
	unattendedBy = 2 * time.Minute  // since On was commanded: it is resent all the time
	heldWait     = 5 * time.Minute  // for a level of a Held run that does not answer: BMCs lock accounts
)

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
