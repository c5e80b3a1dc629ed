// Package bmctest is what every driver of power must do, as one suite: the real
// ones run it against simulated BMCs, and a fake runs it first.
//
// A driver's test describes a World for each case, a simulated BMC with the host
// behind it and the ways in which both can go wrong, and calls Run. What a world
// cannot do is named with its reason and shows as a skipped case. The fake of
// this package has mutants with one fault each; a test proves that the suite
// catches every one of them.
package bmctest
