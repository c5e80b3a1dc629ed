package pace

import (
	"flag"
	"strconv"
)

// Together lets n tests of a package run at once, whatever the number of processors,
// unless the command line says how many: for tests that wait far more than they
// compute. TestMain calls it.
func Together(n int) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if chosen {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // the testing package has had this flag for ever
	}
}
