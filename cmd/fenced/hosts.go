package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/redfish"
)

// hosts is the administrator's inventory, with passwords read at each use.
type hosts map[hostKey]config.HostEntry

type hostKey struct{ cluster, node string }

func newHosts(list []config.HostEntry) hosts {
	h := hosts{}
	for _, e := range list {
		h[hostKey{e.Cluster, e.Node}] = e
	}
	return h
}

// Find implements engine.Hosts. A password that only the cluster's API can give
// is left to the engine.
func (h hosts) Find(_ context.Context, cluster, node string) (bmc.Host, bool, error) {
	e, ok := h[hostKey{cluster, node}]
	if !ok {
		return bmc.Host{}, false, nil
	}
	if e.SecretName != "" {
		e.Secret = e.SecretNamespace + "/" + e.SecretName
		return e.Host, true, nil
	}
	password, err := e.ReadPassword()
	if err != nil {
		return e.Host, true, &engine.Refusal{Reason: policy.SecretMissing, Message: err.Error()}
	}
	e.Password = password
	return e.Host, true, nil
}

// opener picks the driver of a host by its address.
func opener(t bmc.Timing) engine.Opener {
	return func(h bmc.Host) (bmc.Power, error) {
		switch h.Endpoint.Protocol {
		case bmc.ProtocolIPMI:
			return ipmi.New(h, t), nil
		case bmc.ProtocolRedfish:
			return redfish.New(h, t)
		}
		return nil, &bmc.Error{Kind: bmc.KindUnsupported, Op: "open", Addr: h.Endpoint.String(),
			Err: errors.New("no driver for this kind of address")}
	}
}

func describeHosts(list []config.HostEntry) string {
	return fmt.Sprintf("%d hosts in hosts.d", len(list))
}
