package localbmc

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Facts are what this host's BMC reports about itself and its host.
type Facts struct {
	GUID     string       // of the system or of the BMC, in hex, in the byte order of the reply
	Firmware string       // like "9.08"
	Addrs    []netip.Addr // of its network interfaces
	MACs     []string
}

// Facts reads the identity of the BMC. What the BMC does not have stays empty. If
// a part cannot be read, Facts returns the error with all other parts.
func (b *BMC) Facts(ctx context.Context) (Facts, error) {
	var f Facts
	id, err := b.query(ctx, getDeviceID, 4)
	if err != nil {
		return f, err // the BMC does not answer at all
	}
	// The second byte of the firmware's version is binary-coded decimal.
	f.Firmware = fmt.Sprintf("%d.%02x", id[2]&0x7f, id[3])
	var guidErr error
	f.GUID, guidErr = b.guid(ctx)
	lanErr := b.lan(ctx, &f)
	return f, errors.Join(guidErr, lanErr)
}

// A BMC that is busy is asked again: it has what it does not report at that moment.
const (
	busyTries = 3
	busyPause = 250 * time.Millisecond
)

// query is ask, again while the BMC is busy. // I13
func (b *BMC) query(ctx context.Context, c command, want int, data ...byte) (reply []byte, err error) {
	for try := 1; ; try++ {
		reply, err = b.ask(ctx, c, want, data...)
		if code, refused := completion(err); !refused || !busyCodes[code] || try == busyTries {
			return reply, err
		}
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%s of %s: the BMC is busy: %w", c.what, b.name, ctx.Err())
		}
	}
}

// busyCodes are the completion codes of a BMC that is busy, times out, updates itself or starts (table 5-2).
var busyCodes = map[byte]bool{0xc0: true, 0xc3: true, 0xd0: true, 0xd1: true, 0xd2: true}

// guid reads the GUID of the system, which LAN sessions show, or else that of the
// BMC itself.
func (b *BMC) guid(ctx context.Context) (string, error) {
	for _, c := range []command{getSystemGUID, getDeviceGUID} {
		r, err := b.query(ctx, c, 16)
		if _, refused := completion(err); refused {
			continue
		}
		if err != nil {
			return "", err
		}
		return hex.EncodeToString(r[:16]), nil
	}
	return "", nil
}

// The parameters of a LAN channel, and how many IPv6 addresses of a kind are
// read; the number that the BMC reports is not trusted.
const (
	paramIP                = 3
	paramMAC               = 5
	paramIPv6Static        = 56
	paramIPv6Dynamic       = 59
	ipv6Addrs              = 4
	firstLAN, lastLAN      = 1, 8
	ipv6Enabled       byte = 0x80
)

// lan reads the addresses of every LAN channel. A refusal means that there is no
// such channel or parameter; any other error is returned.
func (b *BMC) lan(ctx context.Context, f *Facts) error {
	for channel := byte(firstLAN); channel <= lastLAN; channel++ {
		ip, err := b.lanParam(ctx, channel, paramIP, 0, 4)
		if _, refused := completion(err); refused {
			continue // no LAN channel
		}
		if err != nil {
			return err
		}
		f.addAddr(netip.AddrFrom4([4]byte(ip)))
		mac, err := b.lanParam(ctx, channel, paramMAC, 0, 6)
		if err == nil {
			f.addMAC(mac[:6])
		} else if _, refused := completion(err); !refused {
			return err
		}
		for _, param := range []byte{paramIPv6Static, paramIPv6Dynamic} {
			if err := b.ipv6(ctx, f, channel, param); err != nil {
				return err
			}
		}
	}
	return nil
}

// ipv6 reads the addresses of one kind until there are no more.
func (b *BMC) ipv6(ctx context.Context, f *Facts, channel, param byte) error {
	for set := range byte(ipv6Addrs) {
		// Set selector, source, address, prefix length, status.
		r, err := b.lanParam(ctx, channel, param, set, 19)
		if _, refused := completion(err); refused {
			return nil
		}
		if err != nil {
			return err
		}
		if param == paramIPv6Static && r[1]&ipv6Enabled == 0 {
			continue
		}
		f.addAddr(netip.AddrFrom16([16]byte(r[2:18])))
	}
	return nil
}

// lanParam returns at least want bytes of a parameter, without its revision.
func (b *BMC) lanParam(ctx context.Context, channel, param, set byte, want int) ([]byte, error) {
	r, err := b.query(ctx, getLANSettings, 1+want, channel, param, set, 0)
	if err != nil {
		return nil, err
	}
	return r[1 : 1+want], nil
}

// addAddr adds an address that can reach a BMC.
func (f *Facts) addAddr(a netip.Addr) {
	a = a.Unmap()
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a == broadcast || slices.Contains(f.Addrs, a) {
		return
	}
	f.Addrs = append(f.Addrs, a)
}

func (f *Facts) addMAC(b []byte) {
	mac := net.HardwareAddr(b).String()
	if mac != "00:00:00:00:00:00" && mac != "ff:ff:ff:ff:ff:ff" && !slices.Contains(f.MACs, mac) {
		f.MACs = append(f.MACs, mac)
	}
}

// SystemUUID returns the UUID from the firmware of this host; root is the root of
// the file system. The kernel lets only root read it.
func SystemUUID(root fs.FS) (string, error) {
	f, err := root.Open("sys/class/dmi/id/product_uuid")
	if bad, ok := errors.AsType[*fs.PathError](err); ok {
		bad.Path = "/" + bad.Path // the path in its usual form
	}
	if err != nil {
		return "", fmt.Errorf("read this host's system UUID: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64)) // 36 and a newline
	if err != nil {
		return "", fmt.Errorf("read this host's system UUID: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
