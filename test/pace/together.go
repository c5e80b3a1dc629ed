package pace

import (
	"bufio"
	"flag"
	"math"
	"os"
	"strconv"
	"strings"
)

// Fit is how many of what needs so many bytes of memory the free memory holds, at least one. Where nobody says how much is
// free it is no limit.
func Fit(need int) int {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return math.MaxInt
	}
	defer func() { _ = f.Close() }() // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "MemAvailable:" {
			if kB, err := strconv.Atoi(fields[1]); err == nil {
				return max(1, kB*1024/need)
			}
		}
	}
	return math.MaxInt
}

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
