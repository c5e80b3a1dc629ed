package main

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/localbmc"
)

// factsTime is how long the start of the daemon waits for the BMC of its own host.
const factsTime = 10 * time.Second

// openOwnBMC opens the BMC of this host; nil if there is none, or if it cannot be used.
func openOwnBMC(n int, log *zap.Logger) *localbmc.BMC {
	b, err := localbmc.Open(n)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		log.Info("this host shows no BMC; its machine-id, addresses and system UUID protect it from being fenced", zap.Error(err))
		return nil
	case err != nil:
		log.Warn("this host's BMC cannot be used; its machine-id, addresses and system UUID protect it from being fenced", zap.Error(err))
		return nil
	}
	return b
}

// ownHost is what identifies this machine, so that it is never fenced. It logs what it cannot
// read. // I13
func ownHost(ctx context.Context, b *localbmc.BMC, log *zap.Logger) hosts.Own {
	var own hosts.Own
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		log.Warn("this host's machine-id cannot be read", zap.Error(err))
	}
	own.MachineID = strings.TrimSpace(string(id))
	if own.Addrs, err = ownAddrs(); err != nil {
		log.Warn("this host's addresses cannot all be read", zap.Error(err))
	}
	log.Info("this host's addresses", zap.Stringers("addresses", own.Addrs))
	uuid, err := localbmc.SystemUUID(os.DirFS("/"))
	if err == nil {
		own.UUIDs = append(own.UUIDs, uuid)
	} else {
		// Only root may read it. The BMC and the Node report it, too.
		log.Info("this host's firmware tells no system UUID", zap.Error(err))
	}
	if b != nil {
		own = withOwnBMC(ctx, own, b, log)
	}
	return own
}

func withOwnBMC(ctx context.Context, own hosts.Own, b *localbmc.BMC, log *zap.Logger) hosts.Own {
	ctx, cancel := context.WithTimeout(ctx, factsTime)
	defer cancel()
	f, err := b.Facts(ctx)
	if err != nil {
		log.Warn("this host's BMC does not tell all about itself", zap.Error(err))
	}
	if f.GUID != "" {
		own.UUIDs = append(own.UUIDs, f.GUID)
	}
	own.BMCAddrs, own.BMCMACs = f.Addrs, f.MACs
	log.Info("this host's BMC", zap.String("guid", f.GUID), zap.String("firmware", f.Firmware),
		zap.Stringers("addresses", f.Addrs), zap.Strings("macs", f.MACs))
	return own
}

// metalRules says which addresses and options of BareMetalHosts are accepted. // I10
func metalRules(c config.Config, own []netip.Addr) hosts.MetalRules {
	n := &bmc.Networks{Own: own}
	for _, text := range c.BMCNetworks {
		n.Listed = append(n.Listed, netip.MustParsePrefix(text)) // config has checked it
	}
	return hosts.MetalRules{Networks: n, PlainHTTP: c.BareMetalHosts.PlainHTTP, Unverified: c.BareMetalHosts.Unverified}
}
