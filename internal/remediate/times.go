package remediate

import "time"

// Times that the safety rules rest on. They are therefore not configurable.
const (
	freshFor       = 2 * time.Second  // age of the reads that justify step 1 // I4
	leaseRecentFor = 60 * time.Second // a Lease renewed this shortly before Off ...
	clockRounding  = 2 * time.Second  // of an object's time of creation by this host's clock: the API gives whole seconds
	leaseQuietFor  = 15 * time.Second // ... must stand still this long after it, at least // I5
	answerTime     = 15 * time.Second // how long a level may take to answer beside a manual confirmation
	pauseBeforeOn  = 5 * time.Second  // between proof and On: BMCs drop an On that is sent earlier
	offSettle      = 15 * time.Second // after a run was abandoned an On read counts only then: BMCs switch off late
	healthyFor     = 5 * time.Minute  // before a Held run ends by itself
	waitsHealthy   = time.Minute      // before a Waiting run does
	poll           = time.Second      // between two looks
	busyAtMost     = 10 * time.Minute // that a busy BMC adds to step 1, each time: the run holds a slot meanwhile
	ownRetryFor    = 15 * time.Second // fenced's own order to retry counts for this long
	idlePoll       = 10 * time.Second // between two looks at an idle run
	resendPower    = 10 * time.Second // between two equal power commands
	resendWrite    = 2 * time.Second  // between two equal writes to the cluster
	resendHeldOn   = time.Minute      // between two On commands of an idle run
	lowerLevelWait = 2 * time.Minute  // for a level below the one that cut the host off: its BMC boots when mains return
	daemonAwayFor  = 2 * time.Minute  // since the last On: while fenced runs it sends On more often
	readyOutlives  = 90 * time.Second // for so long a Node may be Ready although its host is off
	heldLevelWait  = 5 * time.Minute  // for a level of an idle run that does not answer: BMCs lock accounts
)

// LeaseDurationMax is the longest duration of a kubelet's Lease that fenced waits for. Kubelets use
// 40 s; with this one they renew every 75 s. // I5
const LeaseDurationMax = 5 * time.Minute
