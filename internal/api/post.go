package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"
)

// maxReason bounds what is kept with a run for ever.
const maxReason = 1000

// order gives the route of one verb.
func (s *Server) order(v Verb) answer {
	return func(ctx context.Context, r *http.Request) (any, error) {
		o, err := readOrder(r)
		if err != nil {
			return nil, err
		}
		if err := v.takes(o); err != nil {
			return nil, err
		}
		if o.Yes {
			// The typed node name is the operator's safeguard; only an admin
			// may do without.
			if err := s.authorise(r, Admin); err != nil {
				return nil, err
			}
		}
		o.Verb, o.Actor = v, peerFrom(r.Context()).Actor()
		o.Cluster, o.Node = r.URL.Query().Get("cluster"), r.PathValue("node")
		// An order is carried through even when its caller has gone: half an
		// order is worse than one whose answer nobody heard.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		return s.daemon.Do(whole, o)
	}
}

// takes refuses what an order of this verb cannot say.
func (v Verb) takes(o Order) error {
	switch {
	case v == Fence, v == EnrollBMC && !o.OffOnly && !o.Yes:
		return nil
	case o.OffOnly || o.Yes || o.DryRun:
		return BadRequest(fmt.Sprintf("%s takes a reason only", v), "")
	}
	return nil
}

// readOrder reads an order, which has a reason.
func readOrder(r *http.Request) (Order, error) {
	o, err := readBody(r)
	if err != nil {
		return o, err
	}
	return o, checkReason(o.Reason)
}

func readBody(r *http.Request) (Order, error) {
	var o Order
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBodyBytes))
	dec.DisallowUnknownFields()
	err := dec.Decode(&o)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			err = errors.New("more than one JSON value")
		}
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return Order{}, &Error{Status: http.StatusRequestEntityTooLarge, Code: CodeTooLarge,
			Message: fmt.Sprintf("the body is larger than %d bytes", maxBodyBytes)}
	}
	if err != nil && !errors.Is(err, io.EOF) { // an empty body is an order without a reason
		return Order{}, BadRequest(fmt.Sprintf("read the order: %v", err), "")
	}
	o.Reason = strings.TrimSpace(o.Reason)
	return o, nil
}

// checkReason wants a sentence for the audit log that is safe to show on a
// terminal.
func checkReason(reason string) error {
	switch {
	case reason == "":
		return BadRequest("an order needs a reason", `say why: --reason "disk fails, ticket 4711"`)
	case len(reason) > maxReason:
		return BadRequest(fmt.Sprintf("the reason is longer than %d bytes", maxReason), "")
	case strings.ContainsFunc(reason, unicode.IsControl):
		return BadRequest("the reason holds control characters", "write it on one line")
	}
	return nil
}
