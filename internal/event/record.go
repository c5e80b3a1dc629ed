package event

import (
	"context"
	"errors"
)

// PerhapsRecorded says whether a record may come to be durable although nobody waited
// for it to the end. Then what does not come to pass is told each time, or the log
// would speak of more than was done. // I24
func PerhapsRecorded(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
