package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxFor bounds a pause or a hold that ends by itself.
const maxFor = Span(365 * 24 * time.Hour)

// order gives the route of one verb, for callers with the role that the order needs.
func (s *Server) order(v Verb) answer {
	return func(ctx context.Context, r *http.Request) (any, error) {
		p := peerFrom(r.Context()).named()
		o, unread := readOrder(r)
		o.Verb, o.Actor = v, p.Actor()
		o.Cluster, o.Node, o.Machine, o.Run = r.URL.Query().Get("cluster"), r.PathValue("node"), machineInPath(r), r.PathValue("id")
		if err := s.authorise(r, o.needs()); err != nil {
			s.recordRefusal(o, p, err)
			return nil, err
		}
		if unread != nil {
			return nil, unread
		}
		res, err := s.carryOut(ctx, r, o, p)
		if err != nil {
			s.recordRefusal(o, p, errorOf(err))
			return nil, err
		}
		return res, nil
	}
}

// carryOut gives the daemon an order of somebody who may give such orders.
func (s *Server) carryOut(ctx context.Context, r *http.Request, o Order, p Peer) (OrderResult, error) {
	if err := o.Verb.takes(o); err != nil {
		return OrderResult{}, err
	}
	if o.needsAdmin() {
		if err := s.authorise(r, Admin); err != nil {
			return OrderResult{}, err
		}
	}
	if o.Verb == ConfirmOff && !o.DryRun && o.Typed != o.Node {
		return OrderResult{}, BadRequest(fmt.Sprintf("typed is %q, not the node's name", o.Typed), "")
	}
	o, failed, err := s.twoPersons.check(o, p, time.Now())
	if err != nil {
		return OrderResult{}, err
	}
	// The order completes even if its caller has disconnected: half an order is
	// worse than a lost answer.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	o.Role = s.roles.Of(p)
	end, err := s.dryRuns.begin(o, p)
	if err != nil {
		return OrderResult{}, err
	}
	defer end()
	result, err := s.daemon.Do(whole, o)
	if err != nil {
		failed()
	}
	return result, err
}

// readOrder reads an order, which has a reason.
func readOrder(r *http.Request) (Order, error) {
	o, err := readBody(r)
	if err != nil {
		return o, err
	}
	return o, CheckReason(o.Reason)
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
