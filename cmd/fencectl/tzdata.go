//go:build tzdata

package main

import _ "time/tzdata" // the image has no files of time zones, which maintenance windows may name
